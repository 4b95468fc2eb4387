"""A process of its own: runs lm-evaluation-harness with a model class of ours. Only its starter names it."""
