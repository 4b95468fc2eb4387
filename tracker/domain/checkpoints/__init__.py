"""Which folders are checkpoints, and when a checkpoint is complete."""
