"""Access to a project for code outside the command line: opening it, and resolving references to checkpoints."""
