"""HTML reports of runs and checkpoints."""
