"""Which runs belong together: a run and its sub-folders, `run/name`, each a run of its own. Pure."""


def is_of(run_id: str, run: str) -> bool:
    """Return whether `run_id` is `run` or one of its sub-folders."""
    return run_id == run or run_id.startswith(prefix_of(run))


def prefix_of(run: str) -> str:
    """Return the common prefix of the names of a run's sub-folders."""
    return f"{run}/"
