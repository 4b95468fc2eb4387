"""Latency verdicts: whether a checkpoint has become slower."""
