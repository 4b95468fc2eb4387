"""Reads the records of a run or a checkpoint for its page."""
