"""What to run at a checkpoint, and running it. No memory, no judgement."""
