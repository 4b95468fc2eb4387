"""Overview of a run, and its cost."""
