"""Converts sharded or pickled training states to safetensors."""
