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
        return step < last_step and branch == run.starts.branch
    return _is_of_later_start(run, step, stream, state)


def _is_of_later_start(run: RunState, step: int, stream: Stream, state: StreamState) -> bool:
    """Return whether a log that logs its first step is not one of those that were written so far."""
    if _is_of_later_job(run, stream):
        return step != run.steps.last
    if is_after_incident(run, stream, state) and run.episodes > run.starts.after:
        return True
    return run.tempo.pauses_at(stream.read_at, run.pace.usual_s) and not stream.is_history


def is_after_incident(run: RunState, stream: Stream, state: StreamState) -> bool:
    """Return whether a log was begun after the incident that lasts."""
    return run.episodes > 0 and state.after == run.episodes and not stream.is_history


def _is_of_later_job(run: RunState, stream: Stream) -> bool:
    """Return whether a log differs from an earlier one by the number of its job: `slurm-124.out`."""
    found = job_numbers(stream.name, stream.rank)
    if found is None:
        return False
    kind, numbers = found
    return kind in run.starts.jobs and numbers > run.starts.jobs[kind]


def remember(run: RunState, step: int, stream: Stream, state: StreamState, printer: str) -> None:
    """Note where a printer stands, and the job of a log that logs its first step."""
    found = None if printer in state.places else job_numbers(stream.name, stream.rank)
    if found is not None:
        kind, numbers = found
        run.starts.jobs[kind] = max(run.starts.jobs.get(kind, numbers), numbers)
    state.remember(printer, step, run.starts.branch)
