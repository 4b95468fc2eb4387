"""A separate process that runs lm-evaluation-harness with our model class. Only its starter refers to it."""
