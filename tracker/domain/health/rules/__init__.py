"""What shows trouble on the lines of a log: rules, and numbers that are none. Pure."""
