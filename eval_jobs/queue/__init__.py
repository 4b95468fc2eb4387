"""The queue that passes plans to workers, and records back."""
