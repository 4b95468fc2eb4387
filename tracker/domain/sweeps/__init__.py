"""Rules of sweeps: when they are due, what they ask, what they will cost and what came of them. Pure."""
