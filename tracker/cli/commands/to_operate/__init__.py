"""Commands for what runs and what is kept."""
