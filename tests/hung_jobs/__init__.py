"""Trainings of two real ranks that hang: `job.py` is the training, `starter.py` starts and ends it."""
