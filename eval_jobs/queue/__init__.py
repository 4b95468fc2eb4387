"""Plans on their way to workers and records on their way back."""
