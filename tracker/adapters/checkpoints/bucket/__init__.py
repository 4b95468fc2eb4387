"""Checkpoints in an S3 bucket."""
