"""Sources of checkpoints: folders, buckets, plugins."""
