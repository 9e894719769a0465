"""What a user runs: submitting, watching and collecting. Imported as `ludwig.client`."""
