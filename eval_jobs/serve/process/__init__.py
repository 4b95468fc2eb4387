"""An engine as a process: launch, readiness, control, stop."""
