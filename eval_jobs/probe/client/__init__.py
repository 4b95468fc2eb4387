"""A process of its own: sends the load and times the answers. Only its starter names it."""
