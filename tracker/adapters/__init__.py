"""One outside library a file, behind the ports."""
