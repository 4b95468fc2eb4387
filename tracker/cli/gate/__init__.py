"""Output formats of a gate's result."""
