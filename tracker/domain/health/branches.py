"""When steps that go back are another start of the training, and not a slow rank or another log of it. Pure."""

from tracker.domain.health.logs.streams import Stream, job_numbers
from tracker.domain.health.run_state import RunState, StreamState


def goes_back(run: RunState, step: int, stream: Stream, state: StreamState, printer: str) -> bool:
    """Return whether a row begins a branch.

    Its printer goes back; or it is a new one after a pause, after an incident, or in the log of a later job. Several
    ranks go back one after the other, and a slow one may lag behind: both is one branch.
    """
    if run.steps.last is None or step > run.steps.last:
        return False
    before = state.places.get(printer)
    if before is not None:
        last_step, branch = before
        return step < last_step and branch == run.branch
    if is_of_later_job(run, stream):
        return step < run.steps.last
    if stream.is_history:
        return False
    is_new_start = is_later(run, stream, state) and run.episodes > run.branched_after
    return is_new_start or run.tempo.pauses_at(stream.read_at)


def is_later(run: RunState, stream: Stream, state: StreamState) -> bool:
    """Return whether a log was begun after the incident that lasts."""
    return run.episodes > 0 and state.after == run.episodes and not stream.is_history


def is_of_later_job(run: RunState, stream: Stream) -> bool:
    """Return whether a log differs from an earlier one by the number of its job: `slurm-124.out`."""
    found = job_numbers(stream.name, stream.rank)
    if found is None:
        return False
    kind, numbers = found
    return kind in run.jobs and numbers > run.jobs[kind]


def note_job(run: RunState, stream: Stream) -> None:
    """Note the job of a log that logs steps."""
    found = job_numbers(stream.name, stream.rank)
    if found is not None:
        kind, numbers = found
        run.jobs[kind] = max(run.jobs.get(kind, numbers), numbers)
