"""The history of every run, in SQL."""
