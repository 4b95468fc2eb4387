"""Identity and integrity of the weights that are served."""
