"""Part of the composition root: the tables [[schedule]] -> the sweeps that the use case executes."""

from datetime import datetime

from eval_jobs.evaluate.data.files import check_benchmark, read_data_digest
from eval_jobs.types import ServeSpec, Suite
from tracker.config import Config
from tracker.domain.sweeps.matrix import different_benchmarks, stand_in
from tracker.domain.sweeps.types import OtherModel, Sweep
from tracker.wiring.programs import benchmark_with_version


def sweeps_of(config: Config, suite: Suite, serve: ServeSpec) -> dict[str, Sweep]:
    """Return the sweeps by name, their local data read and checked.

    Raises:
        BadData: a data file is missing or has a broken line, or a prompt does not fit a benchmark.
        UnknownBenchmark: no benchmark of that name exists.
    """
    found = {}
    for schedule in config.schedule:
        digests = ("" if b.data is None else read_data_digest(b.data) for b in schedule.benchmark)
        pairs = zip(schedule.benchmark, digests, strict=True)
        own = tuple(
            benchmark_with_version(b.to_benchmark(data_digest=digest), config.suite.lm_eval) for b, digest in pairs
        )
        sweep = schedule.to_sweep(suite, serve, own)
        for benchmark in different_benchmarks(sweep):
            if benchmark.program is None:
                check_benchmark(benchmark)
        found[sweep.name] = sweep
    return found


def check_endpoint(other: OtherModel, run: str, now: datetime) -> None:
    """Query the models of a sweep's endpoint, as a worker does, but once and with a short timeout.

    Raises:
        TrackerError: it does not respond, rejects the request, or serves other models.
    """
    from eval_jobs.serve.remote import served_model

    served_model(stand_in(other, run, now), other.serve, is_look=True)
