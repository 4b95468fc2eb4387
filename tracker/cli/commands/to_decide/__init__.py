"""Commands that decide about a checkpoint."""
