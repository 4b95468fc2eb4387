"""What folders, endpoints and stores of others can do to the tracker, tried at random."""
