"""The verdict engine: did a benchmark lose something, held to one level over a whole training run. Pure."""
