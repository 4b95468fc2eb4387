"""A prober that measures nothing: it answers with fixed figures, or fails, as told."""

from eval_jobs.errors import TrackerError
from eval_jobs.probe.latency import Measurement, Timeline, summarize
from eval_jobs.types import Endpoint, ProbeLoad, ProbeResult


class FakeProber:
    """`eval_jobs.ports.Prober`. `asked` holds every load; with `failure` set, `probe` raises it."""

    def __init__(self, *, failed_requests: int = 0, failure: TrackerError | None = None) -> None:
        self.asked: list[tuple[Endpoint, ProbeLoad]] = []
        self.failed_requests = failed_requests
        self.failure = failure

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        self.asked.append((endpoint, load))
        if self.failure is not None:
            raise self.failure
        completed = load.requests - self.failed_requests
        timelines = [_timeline(load) for _ in range(completed)]
        timelines += [Timeline(sent_s=0.0, error="HTTP 500: no") for _ in range(self.failed_requests)]
        return summarize(load, Measurement(timelines=tuple(timelines), duration_s=1.0))

    def rest(self) -> None:
        """Nothing is kept."""


# --- private


def _timeline(load: ProbeLoad) -> Timeline:
    """First token after 20 ms, then one every 5 ms."""
    events_s = tuple(0.020 + 0.005 * n for n in range(load.output_tokens))
    return Timeline(sent_s=0.0, events_s=events_s, output_tokens=load.output_tokens, prompt_tokens=load.input_tokens)
