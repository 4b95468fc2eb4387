"""The lines of trainers' logs: where they are, how far they were read, and the numbers in them. Pure."""
