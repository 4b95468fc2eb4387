"""What asks a project from outside and is no command line: opening it, and naming what it has evaluated."""
