"""Attacks on the tracker as a hostile neighbour would make them, and what they cost."""
