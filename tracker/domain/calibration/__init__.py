"""What repeating an evaluation changes."""
