"""Workers, and how they are started."""
