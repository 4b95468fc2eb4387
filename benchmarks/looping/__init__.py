"""The parts of `benchmarks/loop_time.py`: both ways around, the floor, the trainer beside it."""
