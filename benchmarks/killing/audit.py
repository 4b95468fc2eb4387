"""What a round left, held against what it should have left: lost, doubled, misread, orphans."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.killing.engine import answer_to
from benchmarks.killing.people import everybody
from benchmarks.killing.place import BENCHMARKS, SAMPLES, Place
from benchmarks.killing.store import Store, read_store
from benchmarks.killing.trainer import WEIGHTS, files_of, hash_of_weights, whole_saves
from eval_jobs.queue_types import Hold
from eval_jobs.types import EvalRecord, EvalResult, ProbeResult, SampleScore, SampleStatus
from tracker.adapters.checkpoints.files.safetensors_file import read_weights
from tracker.config import load_config
from tracker.domain.records.types import Report
from tracker.wiring.project import Project

Key = tuple[int, str]

PASSING = re.compile(r"^(?:work(?:/|$)|tracker\.db|mlflow\.db|mlartifacts|samples|pins|mlflow-server\.log)")
"""What may lie in a state folder."""
TOLD = re.compile(r".* tracker\.app\.steps\.alerting: firing: chaos: (.*)$")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a finished round holds."""

    records: Mapping[Key, Sequence[EvalRecord]]
    reports: Sequence[Report]
    gaps: frozenset[int]
    words: Mapping[Key, Mapping[str, str]]
    """Checkpoint -> benchmark -> the word that stands in the end."""
    firing: frozenset[str]
    """Messages of the alerts that are open."""
    told: Mapping[str, int]
    """Message of an alert -> how often somebody was told."""
    deaths: int
    """How often a watcher, or the database that it writes to, was started again."""
    held: Sequence[Hold]
    open_plans: int
    """Plans that nobody will finish any more."""
    store: Store


@dataclass(kw_only=True)
class Verdict:
    """What is wrong, one sentence each."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    misread: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return how many of each."""
        return {name: len(sentences) for name, sentences in vars(self).items()}


def look(place: Place) -> Seen:
    """Read everything that a round left."""
    project = Project(load_config(place.home / "tracker.toml"))
    history = project.history
    records: dict[Key, list[EvalRecord]] = {}
    for bare in (record for run in history.runs() for record in history.records(run)):
        key = (bare.plan.checkpoint.step, bare.plan.checkpoint.digest)
        records.setdefault(key, []).append(history.record(bare.plan.id) or bare)
    reports = [report for run in history.runs() for report in history.reports(run)]
    keys = {record.plan.id: key for key, found in records.items() for record in found}
    return Seen(
        records=records,
        reports=reports,
        gaps=frozenset(step for run in history.runs() for gap in history.gaps(run) for step in gap.steps),
        words={keys[r.plan_id]: {v.benchmark: v.word for v in r.verdicts} for r in reports if r.plan_id in keys},
        firing=frozenset(alert.message for run in history.runs() for alert in history.open_alerts(run)),
        told=told(place),
        deaths=sum(place.starts[name] - 1 for name in ("watcher", "standby", "database") if place.starts[name]),
        held=project.queue.holds(),
        open_plans=sum(project.queue.state().counts.values()),
        store=read_store(place.state),
    )


def told(place: Place) -> Counter[str]:
    """Return how often each alert that fires was written to the logs of the watchers."""
    lines = (line for log in place.home.glob("*.log") for line in log.read_text(errors="replace").splitlines())
    return Counter(found.group(1) for line in lines if (found := TOLD.match(line)))


def audit(place: Place, seen: Seen, reference: Seen | None) -> Verdict:
    """Hold `seen` against the trainer's script and, where there is one, against an undisturbed round."""
    verdict = Verdict()
    expected = expected_checkpoints(real=place.setting.real_engine)
    for key, weights in expected.items():
        _judge_records(verdict, key, weights, seen.records.get(key, ()), real=place.setting.real_engine)
    for key in seen.records.keys() - expected.keys():
        verdict.misread.append(f"step {key[0]} has a record of weights that it never had: {key[1]}")
    if 70 not in seen.gaps:
        verdict.lost.append("step 70, which the trainer never finished, is no gap")
    _judge_reports(verdict, seen)
    _judge_alerts(verdict, seen)
    if reference is not None:
        _compare_words(verdict, seen.words, reference.words)
    _judge_store(verdict, seen.store, None if reference is None else reference.store)
    verdict.orphans += orphans(place)
    verdict.orphans += [f"plan {hold.plan_id} is still held by {hold.worker}" for hold in seen.held]
    if seen.open_plans:
        verdict.lost.append(f"{seen.open_plans} plans are not finished")
    return verdict


@cache
def expected_checkpoints(*, real: bool) -> Mapping[Key, str]:
    """Return step and digest of every complete checkpoint of the script -> the hash that the engine knows it by."""
    found: dict[Key, str] = {}
    for save in whole_saves(real=real):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / WEIGHTS
            path.write_bytes(files_of(save.seed, real=real)[WEIGHTS])
            found[save.step, read_weights([path]).digest] = hash_of_weights(save.seed, real=real)
    return found


def orphans(place: Place) -> Iterator[str]:
    """Yield processes, temporary files, half-made pins and pid files that nobody will ever clear away."""
    for person in everybody(place.home):
        yield f"process {person.pid} {person.role} still runs: {person.command[:120]}"
    for path in sorted((place.home / "tmp").iterdir()):
        yield f"temporary {path.name}"
    for path in sorted(place.state.glob("pins/*/.*")):
        yield f"half-made pin {path.name}"
    for path in sorted(place.state.rglob("*")):
        name = str(path.relative_to(place.state))
        if path.name.endswith((".pid", ".pid-draft", ".tmp", ".partial")) or not PASSING.match(name):
            yield f"left behind: {name}"
    for path in sorted(place.state.glob("work/runs/*")):
        if path.is_dir():
            yield f"half-done evaluation {path.name}"


# --- private


def _judge_records(verdict: Verdict, key: Key, weights: str, records: Sequence[EvalRecord], *, real: bool) -> None:
    what = f"step {key[0]} {key[1][:8]}"
    if not records:
        verdict.lost.append(f"{what} has no record")
    if len(records) > 1:
        verdict.doubled.append(f"{what} has {len(records)} records")
    for record in records:
        results = {o.benchmark: o for o in record.outcomes if isinstance(o, EvalResult)}
        for name in BENCHMARKS:
            result = results.get(name)
            if result is None:
                failed = next((o for o in record.outcomes if o.benchmark == name), None)
                verdict.lost.append(f"{what} has no result of {name}: {failed}")
            else:
                _judge_samples(verdict, f"{what} {name}", None if real else weights, result.samples)
        verdict.lost += [f"{what} has no latency: {p}" for p in record.probes if not isinstance(p, ProbeResult)]


def _judge_samples(verdict: Verdict, what: str, weights: str | None, samples: Sequence[SampleScore]) -> None:
    questions = Counter(sample.prompt for sample in samples)
    verdict.doubled += [f"{what}: {question} is there {n} times" for question, n in questions.items() if n > 1]
    if len(questions) != SAMPLES:
        verdict.lost.append(f"{what} has {len(questions)} of {SAMPLES} samples")
    for sample in samples:
        if sample.status is SampleStatus.TRUNCATED and weights is None:
            continue  # a real model of random weights rarely ends by itself
        if sample.status is not SampleStatus.SCORED:
            verdict.lost.append(f"{what}: {sample.prompt} is {sample.status}: {sample.detail}")
        elif weights is not None:
            answer = answer_to(sample.prompt, weights)
            if sample.answer != answer or sample.score != float(answer == sample.target):
                verdict.misread.append(f"{what}: {sample.prompt} {sample.answer} ({sample.score}) and not {answer}")


def _judge_reports(verdict: Verdict, seen: Seen) -> None:
    plans = Counter(report.plan_id for report in seen.reports)
    verdict.doubled += [f"plan {plan} has {n} reports" for plan, n in plans.items() if n > 1]
    known = {record.plan.id for records in seen.records.values() for record in records}
    verdict.lost += [f"plan {plan} has no report" for plan in known - plans.keys()]


def _judge_alerts(verdict: Verdict, seen: Seen) -> None:
    verdict.lost += [f"nobody was told: {message}" for message in seen.firing if not seen.told.get(message)]
    # A death between telling and remembering repeats one message; any other repetition is a mistake.
    again = {message: n for message, n in seen.told.items() if n > 1}
    if sum(again.values()) - len(again) > seen.deaths:
        verdict.doubled.append(f"{seen.deaths} watchers or databases died, but told were {again}")
    if not any("checkpoint 70" in message for message in seen.told):
        verdict.lost.append("nobody was told that step 70 will not be evaluated")


def _compare_words(
    verdict: Verdict, ours: Mapping[Key, Mapping[str, str]], theirs: Mapping[Key, Mapping[str, str]]
) -> None:
    for key, words in theirs.items():
        for benchmark, word in words.items():
            found = ours.get(key, {}).get(benchmark)
            if found != word:
                verdict.misread.append(f"step {key[0]} {key[1][:8]} {benchmark} is {found} and not {word}")


def _judge_store(verdict: Verdict, store: Store, reference: Store | None) -> None:
    if len(store.runs) > 1:
        verdict.doubled.append(f"MLflow has the runs {store.runs}")
    counted = (("model", store.models), ("curve point", store.curves), ("input", store.inputs))
    for what, counts in counted:
        verdict.doubled += [f"MLflow has {what} {key} {n} times" for key, n in counts.items() if n > 1]
    for place, values in store.metrics.items():
        if len(values) != len(set(values)):
            verdict.doubled.append(f"MLflow has {place} more than once: {values}")
    if reference is not None:
        _compare(verdict, store, reference)


def _compare(verdict: Verdict, store: Store, reference: Store) -> None:
    for name in ("models", "curves", "inputs", "tags", "files"):
        ours, theirs = set(getattr(store, name)), set(getattr(reference, name))
        verdict.lost += [f"MLflow lacks {name[:-1]} {key}" for key in sorted(theirs - ours)]
        verdict.misread += [f"MLflow has an unknown {name[:-1]} {key}" for key in sorted(ours - theirs)]
    verdict.misread += [
        f"MLflow: tag {key} is {value!r} and not {reference.tags[key]!r}"
        for key, value in store.tags.items()
        if reference.tags.get(key, value) != value and not key[1].startswith("tracker.checkpoint_key")
    ]
    for place in sorted(reference.metrics.keys() - store.metrics.keys()):
        verdict.lost.append(f"MLflow lacks the metric {place}")
    for place, values in store.metrics.items():
        if values[-1:] != reference.metrics.get(place, ())[-1:]:
            verdict.misread.append(f"MLflow: {place} is {values}, undisturbed {reference.metrics.get(place)}")
