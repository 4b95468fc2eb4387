"""Records -> tables and lines of a terminal. Pure."""
