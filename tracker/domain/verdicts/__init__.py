"""Has a checkpoint become worse? The verdict of each benchmark, and its reason."""
