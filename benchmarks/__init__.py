"""Measurements of the product beside what others do. Run from the repository's root."""
