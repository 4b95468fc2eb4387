"""Training health: following the logs of a run, and reporting what they show."""
