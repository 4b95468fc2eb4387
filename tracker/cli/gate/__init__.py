"""The formats in which a gate gives its answer."""
