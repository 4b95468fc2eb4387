"""Checkpoints in a folder of this machine."""
