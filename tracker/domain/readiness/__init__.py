"""Findings of `tracker doctor`: what would make evaluations fail, known before an engine starts."""
