"""What lm-evaluation-harness writes, read without any I/O: for its results here, and for those that others measured."""
