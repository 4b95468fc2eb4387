"""Data of a run's or a checkpoint's page."""
