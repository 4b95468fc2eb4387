"""Which folders are checkpoints, and when one is complete."""
