"""A process of its own that imports torch. Only its starter names it."""
