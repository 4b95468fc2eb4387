"""Results as tables: one definition of each, for Python, exports and what is shown."""
