"""Which runs belong together: a run and its sub-folders, `run/name`, each a run of its own. Pure."""


def is_of(run_id: str, run: str) -> bool:
    """Return whether a checkpoint of `run_id` is of `run` or of one of its sub-folders."""
    return run_id == run or run_id.startswith(prefix_of(run))


def prefix_of(run: str) -> str:
    """Return what the names of a run's sub-folders begin with."""
    return f"{run}/"
