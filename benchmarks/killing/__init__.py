"""Kills everything again and again, and counts what is lost, doubled, misread or left behind."""
