"""The implementations of `ludwig.drive.Drive`: one module per kind of drive."""
