"""Content hashes that define when plans, suites and results are the same. Pure."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache

from eval_jobs.neutral_settings import is_neutral_argument, split_arguments
from eval_jobs.types import (
    AskingSettings,
    Benchmark,
    Checkpoint,
    EngineKind,
    EvalPlan,
    EvalResult,
    Generation,
    Outcome,
    ProbeLoad,
    Program,
    Screen,
    ScreenPart,
    ServeSpec,
    Suite,
    SweepCell,
)

SCORING_VERSION = 1
"""Raised whenever our own prompts, scorers or status rules change what a sample's score can be."""

SECOND_SEED = 1_000_000
"""Added to the seed in the second pass of a calibration; large, because repeats of a sample use the next seeds."""

DIGEST_CHARS = 32
"""128 bits: MLflow accepts dataset digests of at most 36 characters."""


def content_hash(value: object) -> str:
    """Return a hex hash of JSON-like `value`; equal values give equal hashes on every machine."""
    # A file may contain a lone surrogate, which has no UTF-8 encoding.
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]


def score_settings(benchmark: Benchmark, suite: Suite) -> Mapping[str, object]:
    """Return the settings of an evaluation that identify its plan, by name: `series_settings`, and the concurrency."""
    settings: dict[str, object] = asdict(benchmark)
    # The path of the data does not matter; its digest does.
    del settings["data"]
    del settings["max_tokens"], settings["measured_with"], settings["program"]
    settings |= _program_settings("evaluator", benchmark.program)
    if benchmark.measured_with:
        return settings | dict(benchmark.measured_with)
    generation = asdict(suite.generation)
    if benchmark.max_tokens is not None:
        generation["max_tokens"] = benchmark.max_tokens
    return settings | generation | {"concurrency": suite.concurrency, "scoring_version": SCORING_VERSION}


def benchmark_fingerprint(benchmark: Benchmark, suite: Suite) -> str:
    """Return the hash of `score_settings`; what makes results comparable is `series_fingerprints`."""
    return content_hash(score_settings(benchmark, suite))


def series_settings(benchmark: Benchmark, suite: Suite) -> Mapping[str, object]:
    """Return all settings that can change this benchmark's scores, by name, so that differences can be named.

    Neutral settings have their defaults: equal for all, and most series keep the hash that they were stored with.
    """
    measured_with = tuple(one for one in benchmark.measured_with if not _is_neutral_import(one[0]))
    suite = replace(suite, concurrency=AskingSettings.concurrency)
    return score_settings(replace(benchmark, measured_with=measured_with), suite)


def series_fingerprint(benchmark: Benchmark, suite: Suite) -> str:
    """Return the hash of `series_settings`."""
    return _fingerprints(benchmark, suite.generation, suite.concurrency)[1]


def series_fingerprints(plan: EvalPlan, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return `series_fingerprint` of each of `outcomes` of one plan: only results with equal ones are comparable.

    It is derived from the stored plan. An outcome of settings other than its plan's, or of another version of the
    program, keeps its own fingerprint. If the settings of an imported result lack its metric, the metric is added.
    """
    benchmarks = {benchmark.name: benchmark for benchmark in plan.suite.benchmarks}
    found: list[str] = []
    for outcome in outcomes:
        fingerprint, benchmark = outcome.fingerprint, benchmarks.get(outcome.benchmark)
        if benchmark is not None:
            stored, comparable = _fingerprints(benchmark, plan.suite.generation, plan.suite.concurrency)
            fingerprint = comparable if fingerprint == stored else fingerprint
            if isinstance(outcome, EvalResult) and _lacks_metric(benchmark):
                fingerprint = content_hash([fingerprint, outcome.metric])
        found.append(fingerprint)
    return tuple(found)


def serve_settings(serve: ServeSpec) -> Mapping[str, object]:
    """Return the serving settings that identify a plan, by name: no addresses, interpreters or timeouts."""
    if serve.engine is EngineKind.REMOTE:
        return {"engine": serve.engine, "model": serve.model}
    settings = {
        "engine": serve.engine,
        "dtype": serve.dtype,
        "max_model_len": serve.max_model_len,
        "args": serve.args,
        "trust_remote_code": serve.trust_remote_code,
    }
    return settings | _program_settings("engine", serve.program)


def series_serving(serve: ServeSpec) -> Mapping[str, object]:
    """Return all serving settings that can change a score, by name: `serve_settings` without neutral arguments."""
    if serve.engine in (EngineKind.VLLM, EngineKind.SGLANG):
        serve = replace(serve, args=split_arguments(serve.args)[0])
    return serve_settings(serve)


@lru_cache(maxsize=4096)
def series_serving_hash(serve: ServeSpec) -> str:
    """Return the hash of `series_serving`."""
    return content_hash(series_serving(serve))


def suite_fingerprint(suite: Suite) -> str:
    """Return a hash over all benchmarks of the suite, independent of their order."""
    return content_hash(sorted(benchmark_fingerprint(b, suite) for b in suite.benchmarks))


def make_plan(
    checkpoint: Checkpoint,
    suite: Suite,
    serve: ServeSpec,
    loads: Iterable[ProbeLoad],
    reference: Checkpoint | None = None,
) -> EvalPlan:
    """Build a plan; its ID depends on what is served, the suite's content and the settings, not on paths or times.

    Nor on the latency reference: no score depends on it, and it changes if a lower step of the run appears late.
    """
    loads = tuple(loads)
    plan_id = content_hash(
        [
            checkpoint.run_id,
            checkpoint.step,
            checkpoint.digest,
            suite.name,
            suite_fingerprint(suite),
            checkpoint.files_digest,
            serve_settings(serve),
            serve.base_url,
            [asdict(load) for load in loads],
            *([asdict(suite.part)] if suite.part is not None else []),
        ]
    )
    return EvalPlan(id=plan_id, checkpoint=checkpoint, suite=suite, serve=serve, loads=loads, reference=reference)


def missing_plan(whole: EvalPlan, benchmarks: Collection[str], loads: Collection[ProbeLoad]) -> EvalPlan:
    """Build the plan for some benchmarks and loads of `whole`, if all other results of its checkpoint are known."""
    suite = replace(whole.suite, benchmarks=tuple(b for b in whole.suite.benchmarks if b.name in benchmarks))
    plan = make_plan(whole.checkpoint, suite, whole.serve, loads, whole.reference if loads else None)
    return replace(plan, whole=whole.suite.benchmarks)


def screen_plan(whole: EvalPlan, screen: Screen) -> EvalPlan:
    """Build the plan that evaluates the screen of each benchmark of `whole`, with the same checkpoint and settings."""
    suite = replace(whole.suite, part=ScreenPart(screen=screen))
    return make_plan(whole.checkpoint, suite, whole.serve, whole.loads, whole.reference)


def rest_plan(screen: EvalPlan, benchmarks: Collection[str]) -> EvalPlan:
    """Build the plan for the samples outside the screens of some benchmarks; latency was measured with the screens."""
    if screen.suite.part is None:
        raise ValueError(f"plan {screen.id} is not a screen")
    suite = replace(
        screen.suite,
        benchmarks=tuple(b for b in screen.suite.benchmarks if b.name in benchmarks),
        part=replace(screen.suite.part, is_rest=True),
    )
    plan = make_plan(screen.checkpoint, suite, screen.serve, ())
    # Of a screen whose benchmarks were asked one after the other, too, the settings must make the same plan again.
    whole = make_plan(screen.checkpoint, screen.suite, screen.serve, screen.loads)
    return replace(plan, id=content_hash([plan.id, "rest of", whole.id]))


def calibration_plan(checkpoint: Checkpoint, suite: Suite, serve: ServeSpec, number: int) -> EvalPlan:
    """Build the plan of calibration `number`, from 1: two passes over the suite, separate from all other evaluations.

    No answer is shared with the checkpoint's ordinary plan, with an earlier calibration, or between its own passes.
    """
    plan = make_plan(checkpoint, suite, serve, ())
    return replace(plan, id=content_hash([plan.id, "calibration", number]), calibration=number)


def sweep_plan(plan: EvalPlan, cell: SweepCell) -> EvalPlan:
    """Build the plan of a sweep with the content of `plan`, separate from other evaluations of the checkpoint."""
    return replace(plan, id=content_hash([plan.id, "sweep", asdict(cell)]), sweep=cell)


def second_pass(suite: Suite) -> Suite:
    """Return the suite of a calibration's second pass: the same suite with another seed.

    Greedy decoding uses no seed. With a temperature, the same seed would draw the same answers again and hide sampling
    noise. The seed also makes the fingerprints of the two passes differ, so that their results cannot be confused.
    """
    generation = replace(suite.generation, seed=suite.generation.seed + SECOND_SEED)
    return replace(suite, generation=generation)


def sample_key(subset: str, messages: Iterable[tuple[str, str]], target: object) -> str:
    """Return the content key that pairs one question across checkpoints, independent of its position.

    `messages`: (role, text) of the prompt: system and user turns only.
    """
    return content_hash([subset, [list(m) for m in messages], target])


def numbered(keys: Iterable[str]) -> tuple[str, ...]:
    """Make repeated keys unique by their occurrence, in order: `a, b, a` gives `a, b, a#1`."""
    seen: Counter[str] = Counter()
    result = []
    for key in keys:
        result.append(f"{key}#{seen[key]}" if seen[key] else key)
        seen[key] += 1
    return tuple(result)


def _program_settings(kind: str, program: Program | None) -> dict[str, object]:
    """Return the settings of `program` that can change a score; empty for the default program (None)."""
    if program is None:
        return {}
    options = {f"{kind}.{name}": value for name, value in program.options}
    return {kind: program.name, f"{kind}_version": program.version, **options}


@lru_cache(maxsize=2**15)
def _fingerprints(benchmark: Benchmark, generation: Generation, concurrency: int) -> tuple[str, str]:
    """Return `benchmark_fingerprint`, and the hash of `series_settings`."""
    suite = Suite(name="", benchmarks=(), generation=generation, concurrency=concurrency)
    return benchmark_fingerprint(benchmark, suite), content_hash(series_settings(benchmark, suite))


def _lacks_metric(benchmark: Benchmark) -> bool:
    settings = benchmark.measured_with
    return bool(settings) and all(name != "metric" for name, _ in settings)


def _is_neutral_import(name: str) -> bool:
    """Return whether a setting of an imported result is a neutral argument of its engine: `model.swap_space`."""
    kind, _, argument = name.partition(".")
    return kind == "model" and is_neutral_argument(argument)
