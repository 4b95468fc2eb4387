"""The numbers of a training, each against its own past. Pure."""
