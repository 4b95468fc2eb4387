"""How a run was measured: suite, generation, engine, time per checkpoint. Pure.

Secrets are hidden: a URL is shown without user name and password, an argument that looks like a key without its value.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from urllib.parse import urlsplit

from dashboards.data.run import RunData, measurement_changes, neutral_changes
from eval_jobs.types import Benchmark, EngineKind, EvalRecord, EvalResult, Generation, ProbeResult, ServeSpec
from tracker.domain.calibration.repetition_text import NOT_CALIBRATED, effect_text, is_unfit
from tracker.domain.overview.costs import cost_headline
from tracker.domain.records.calibration import Fitness, Repetition
from tracker.domain.records.display import NOTHING, count_text, duration_text, names_text, one_line
from tracker.domain.records.imported import is_imported
from tracker.domain.records.reason_text import difference_text
from tracker.domain.scores.summary import result_of, summarise

FINGERPRINT_CHARS = 12
MAX_STEPS_NAMED = 12
MAX_CHANGES_NAMED = 5
_SECRET = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class MeasuredBenchmark:
    """One benchmark as it was last measured."""

    name: str
    adapter: str
    metric: str
    samples: str
    settings: str
    fingerprint: str
    repeated: str
    """Run-to-run noise."""
    is_unfit: bool
    changed_at: tuple[int, ...]
    """Steps from which it was measured differently than before."""


@dataclass(frozen=True, kw_only=True)
class MeasuredView:
    """How the run was measured, ready to show: (name, value) pairs and one row per benchmark."""

    facts: tuple[tuple[str, str], ...]
    benchmarks: tuple[MeasuredBenchmark, ...]


def measured(data: RunData) -> MeasuredView:
    """Return how the newest checkpoint was measured, and where that changed along the run."""
    if not data.records:
        return MeasuredView(facts=(), benchmarks=())
    newest, changes = data.records[-1], measurement_changes(data.records)
    return MeasuredView(
        facts=(
            *_asked_facts(newest),
            ("Engine", _engines_text(data.records)),
            ("Weights loaded", _loads_text(data.records)),
            *_neutral_facts(data.records),
            *_trust_facts(data.records),
            ("Time per checkpoint, median", _times_text(data.records)),
            *_cost_facts(data),
        ),
        benchmarks=tuple(_benchmark(b, data, changes.get(b.name, ())) for b in newest.plan.suite.benchmarks),
    )


def asked_texts(record: EvalRecord) -> dict[str, str]:
    """Return how each benchmark of a record was evaluated: generation and settings, by its name."""
    found = {}
    for benchmark in record.plan.suite.benchmarks:
        generation = record.plan.suite.generation
        if benchmark.max_tokens is not None:
            generation = replace(generation, max_tokens=benchmark.max_tokens)
        asked = [] if is_imported(record) else [_generation_text(generation)]
        found[benchmark.name] = ", ".join(
            (*asked, *_asked_with(replace(benchmark, max_tokens=None)), *_measured_with(benchmark))
        )
    return found


def plans_with_counts(data: RunData) -> tuple[str, ...]:
    """Return the ids of the plans whose samples are counted: for each benchmark, the newest with a result."""
    found: dict[str, None] = {}
    for record in data.records[-1:]:
        for benchmark in record.plan.suite.benchmarks:
            newest = _newest(data, benchmark.name)
            if newest is not None:
                found[newest[0]] = None
    return tuple(found)


def _asked_facts(newest: EvalRecord) -> Iterator[tuple[str, str]]:
    suite = newest.plan.suite
    if is_imported(newest):
        yield ("Suite", f"{one_line(suite.name)}, imported")
        return
    yield (
        "Suite",
        f"{one_line(suite.name)}, {suite.concurrency} requests in flight, timeout {suite.request_timeout_s:g} s",
    )
    yield ("Generation", _generation_text(suite.generation))
    yield ("Served with", _serve_text(newest.plan.serve))


def _generation_text(generation: Generation) -> str:
    kind = "greedy" if generation.temperature == 0 else f"temperature {generation.temperature:g}"
    top_k = "" if generation.top_k < 0 else f", top_k {generation.top_k}"
    return f"{kind}, top_p {generation.top_p:g}{top_k}, at most {generation.max_tokens} tokens, seed {generation.seed}"


def _engines_text(records: Sequence[EvalRecord]) -> str:
    """Return every engine version that served the run: a change of version can change scores."""
    first_step: dict[str, int] = {}
    for record in records:
        if record.engine is not None:
            name = f"{one_line(record.engine.name)} {one_line(record.engine.version)}"
            first_step.setdefault(name, record.plan.checkpoint.step)
    if len(first_step) <= 1:
        return next(iter(first_step), "failed to start")
    return ", ".join(f"{name} from step {step}" for name, step in first_step.items())


def _loads_text(records: Sequence[EvalRecord]) -> str:
    methods = Counter(record.engine.load_method for record in records if record.engine is not None)
    parts = [f"{count} {one_line(method)}" for method, count in methods.most_common()]
    failed = len(records) - methods.total()
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def _serve_text(spec: ServeSpec) -> str:
    if spec.engine is EngineKind.REMOTE:
        return f"{one_line(without_user(spec.base_url))}, model {one_line(spec.model) or '(the only one served)'}"
    length = f", context {spec.max_model_len} tokens" if spec.max_model_len else ""
    return f"dtype {one_line(spec.dtype)}{length}{''.join(f' {one_line(a)}' for a in with_keys_hidden(spec.args))}"


def _neutral_facts(records: Sequence[EvalRecord]) -> Iterator[tuple[str, str]]:
    """Yield the newest changes of settings that start no new series."""
    changes = sorted(neutral_changes(records).items())
    named = [f"step {step}: {one_line('; '.join(map(difference_text, found)))}" for step, found in changes]
    if len(named) > MAX_CHANGES_NAMED:
        named = [f"{len(named) - MAX_CHANGES_NAMED} earlier changes", *named[-MAX_CHANGES_NAMED:]]
    if named:
        yield ("Changed without effect on scores", ", ".join(named))


def _trust_facts(records: Sequence[EvalRecord]) -> Iterator[tuple[str, str]]:
    """Yield what was allowed to run third-party code, with the steps; empty if nothing was."""
    trusting, unpickled = set(), set()
    for record in records:
        serve, checkpoint = record.plan.serve, record.plan.checkpoint
        if serve.trust_remote_code and serve.engine is not EngineKind.REMOTE:
            trusting.add(checkpoint.step)
        if checkpoint.unpickled:
            unpickled.add(checkpoint.step)
    if trusting:
        yield ("Checkpoint code", f"trusted (serve.trust_remote_code), {_steps_text(trusting)}")
    if unpickled:
        yield ("Pickled weights", f"unpickled (watch.allow_pickle), {_steps_text(unpickled)}")


def _steps_text(steps: set[int]) -> str:
    ordered = [str(step) for step in sorted(steps)]
    return f"{'step' if len(ordered) == 1 else 'steps'} {names_text(ordered, at_most=MAX_STEPS_NAMED)}"


def without_user(url: str) -> str:
    """Return a URL without user name, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(invalid URL)"
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


def with_keys_hidden(args: Iterable[str]) -> tuple[str, ...]:
    """Return command-line arguments with the values of those that look like keys replaced."""
    shown: list[str] = []
    secret = False
    for arg in args:
        name, equals, _ = arg.partition("=")
        is_option = arg.startswith("-")
        if is_option:
            secret = _SECRET.search(name) is not None  # stays set for the values that follow: `--api-key` takes several
        if not secret:
            shown.append(arg)
        elif not is_option:
            shown.append("***")
        else:
            shown.append(f"{name}=***" if equals else name)
    return tuple(shown)


def _times_text(records: Sequence[EvalRecord]) -> str:
    spent: list[tuple[float, float, float, float]] = []
    for record in records:
        if record.engine is None or is_imported(record):
            continue
        scoring = sum(o.duration_s for o in record.results)
        probing = sum(p.duration_s for p in record.probes if isinstance(p, ProbeResult))
        total = (record.finished_at - record.started_at).total_seconds()
        spent.append((total, record.engine.load_s, scoring, probing))
    if not spent:
        return NOTHING
    typical = [duration_text(median(seconds)) for seconds in zip(*spent, strict=True)]
    return "{}: loading {}, scoring {}, latency test {}".format(*typical)


def _cost_facts(data: RunData) -> Iterator[tuple[str, str]]:
    if data.costs is not None and data.costs.checkpoints:
        yield ("Cost", cost_headline(data.costs))


def _benchmark(benchmark: Benchmark, data: RunData, changed_at: tuple[int, ...]) -> MeasuredBenchmark:
    newest, known = _newest(data, benchmark.name), data.repetitions.get(benchmark.name)
    outcomes = chain.from_iterable(record.outcomes for record in reversed(data.records))
    fingerprint = next(outcome.fingerprint for outcome in outcomes if outcome.benchmark == benchmark.name)
    metric, samples = NOTHING, NOTHING
    if newest is not None:
        metric, samples = one_line(newest[1].metric), _samples_text(data, newest[0], benchmark.name)
    return MeasuredBenchmark(
        name=one_line(benchmark.name),
        adapter=one_line(_asked_by(benchmark)),
        metric=metric,
        samples=samples,
        settings=", ".join((*_asked_with(benchmark), *_measured_with(benchmark))),
        fingerprint=fingerprint[:FINGERPRINT_CHARS],
        repeated=_repeated_text(known),
        is_unfit=is_unfit(known),
        changed_at=changed_at,
    )


def _asked_by(benchmark: Benchmark) -> str:
    program = benchmark.program
    if program is None:
        return benchmark.adapter
    return f"{benchmark.adapter} ({program.version})"


def _newest(data: RunData, benchmark: str) -> tuple[str, EvalResult] | None:
    for record in reversed(data.records):
        result = result_of(record, benchmark)
        if result is not None:
            return record.plan.id, result
    return None


def _samples_text(data: RunData, plan_id: str, benchmark: str) -> str:
    record = data.texts.get(plan_id)
    result = None if record is None else result_of(record, benchmark)
    if result is None:
        return NOTHING
    found = summarise(result)
    parts = [str(found.planned)]
    if found.truncated:
        parts.append(f"{found.truncated} truncated")
    if found.unscored:
        parts.append(f"{found.unscored} unscored")
    if found.error:
        parts.append(f"{count_text(found.error, 'error')}")
    return ", ".join(parts)


def _repeated_text(known: Repetition | None) -> str:
    if known is None:
        return NOT_CALIBRATED
    verdict = f", {known.fitness}" if known.fitness is not Fitness.UNSURE and not known.stale else ""
    when = f"step {known.step}, {known.measured_at:%Y-%m-%d}"
    return f"{one_line(effect_text(known))}{verdict} ({when})"


def _asked_with(benchmark: Benchmark) -> Iterator[str]:
    if benchmark.subsets:
        yield f"subsets {', '.join(map(one_line, benchmark.subsets))}"
    if benchmark.limit is not None:
        yield f"at most {benchmark.limit} samples per subset"
    if benchmark.few_shot is not None:
        yield f"{benchmark.few_shot}-shot"
    if benchmark.repeats != 1:
        yield f"{benchmark.repeats} answers per sample"
    if benchmark.max_tokens is not None:
        yield f"at most {benchmark.max_tokens} tokens"
    if benchmark.prompt_template is not None:
        yield "custom prompt template"


def _measured_with(benchmark: Benchmark) -> Iterator[str]:
    for name, value in benchmark.measured_with:
        yield f"{one_line(name)} {one_line(value)}"
    if not benchmark.higher_is_better:
        yield "lower is better"
