"""What a tracking store is given."""
