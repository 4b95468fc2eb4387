"""Choice of the metric that is the score of a task, and its direction. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval_jobs.harness.fields import Fields, finite
from eval_jobs.harness.known_tasks import NO_SHARES, known_direction

_NO_METRICS = frozenset(("alias", "name", "sample_len", "sample_count"))


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of a task, through one filter."""

    name: str
    filter: str
    mean: object
    stderr: object
    up: bool | None
    """Whether higher is better; None if not declared."""

    @property
    def key(self) -> str:
        """Name and filter, as in the file."""
        if self.filter:
            return f"{self.name},{self.filter}"
        return self.name


class NoScore(Exception):
    """A task has no metric that can be imported."""


def metrics_of(document: Fields, entry: Fields, task: str) -> Iterator[Metric]:
    """Yield the metrics of a task, one for each filter."""
    for key, mean in entry.values.items():
        name, _, through = key.partition(",")
        if name.strip() in _NO_METRICS or name.endswith("_stderr"):
            continue
        stderr = entry.values.get(f"{name}_stderr,{through}" if through else f"{name}_stderr")
        yield Metric(name=name, filter=through, mean=mean, stderr=stderr, up=_direction(document, task, name))


def chosen_metric(metrics: Iterator[Metric], wanted: Sequence[str]) -> Metric:
    """Return the first usable metric in `wanted`, else the first that is a score from 0 to 1.

    Raises:
        NoScore: there is none.
    """
    known = tuple(metrics)
    first = [m for want in wanted for m in known if want in (m.name, m.key)]
    problems = []
    for metric in (*first, *known):
        problem = problem_of(metric)
        if not problem:
            return metric
        problems.append(f"`{metric.key}` {problem}")
    raise NoScore("; ".join(dict.fromkeys(problems)) or "no metrics reported")


def _direction(document: Fields, task: str, metric: str) -> bool | None:
    said = document.mapping("higher_is_better").mapping(task).values.get(metric)
    if isinstance(said, bool):
        return said
    listed = document.mapping("configs").mapping(task).values.get("metric_list")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("metric") == metric and isinstance(one.get("higher_is_better"), bool):
            return bool(one["higher_is_better"])
    return known_direction(metric)


def problem_of(metric: Metric) -> str:
    """Return why a metric cannot be imported. One without a value can be, as a failure."""
    if metric.name in NO_SHARES:
        return "is not a score from 0 to 1"
    if metric.up is None:
        return "cannot be used: the file does not declare whether higher is better"
    mean = finite(metric.mean)
    if mean is None or 0 <= mean <= 1:
        return ""
    return f"is {mean:g}, not a score from 0 to 1"
