"""Plans for checkpoints and their execution. Keeps no history and computes no verdicts."""
