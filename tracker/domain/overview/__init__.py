"""A whole run at a glance, and what it cost."""
