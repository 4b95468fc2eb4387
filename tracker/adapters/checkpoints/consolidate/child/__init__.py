"""A separate process that imports torch. Only `consolidator` refers to it."""
