"""Figures and their SVG drawings."""
