"""An engine that stays between checkpoints, and how the next weights get into it."""
