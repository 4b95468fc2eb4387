"""Our own holds on checkpoints."""
