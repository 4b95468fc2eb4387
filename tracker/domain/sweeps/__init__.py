"""Rules of sweeps: when they are due, what they evaluate, what they cost, and their results. Pure."""
