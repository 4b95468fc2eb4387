"""Commands that evaluate checkpoints."""
