"""The machine: clock, processes, GPUs, disk, locks, secrets, installed plugins."""
