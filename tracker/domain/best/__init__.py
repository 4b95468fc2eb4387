"""The best checkpoint of a run, champions, and which checkpoints are kept."""
