"""Reads what decides whether a training can run on this machine: limits, cgroups, memory, disks, network and GPUs."""
