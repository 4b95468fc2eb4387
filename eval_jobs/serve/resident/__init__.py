"""An engine that keeps running between checkpoints, and how the next weights are loaded into it."""
