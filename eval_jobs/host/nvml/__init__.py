"""What NVML says of this machine's GPUs."""
