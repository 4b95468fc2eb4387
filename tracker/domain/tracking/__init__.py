"""Contents of a tracking store."""
