"""What hostile neighbours do to the tracker, and what it costs."""
