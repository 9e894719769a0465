"""`ludwig demo`: a whole lab on this machine, a sweep, a death, and nothing lost."""
