"""Folders, endpoints and stores as a hostile neighbour would make them, from seeds."""
