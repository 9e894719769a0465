"""A demonstration of a whole lab on one machine: `ludwig demo`."""
