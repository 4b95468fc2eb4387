"""Random hostile folders, endpoints and stores against the real program."""
