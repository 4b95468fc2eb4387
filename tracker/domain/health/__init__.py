"""Training health: what the trainer's own output says. Pure."""
