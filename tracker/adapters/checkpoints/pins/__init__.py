"""The tracker's own pins of checkpoints."""
