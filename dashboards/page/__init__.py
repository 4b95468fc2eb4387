"""Builds the HTML files, and the command `tracker report`."""
