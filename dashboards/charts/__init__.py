"""Figures and the SVG that shows them."""
