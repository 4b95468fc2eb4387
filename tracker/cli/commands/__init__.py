"""One module per command, in the groups of `tracker --help`."""
