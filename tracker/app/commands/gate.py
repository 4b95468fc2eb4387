"""`tracker gate`: decides whether a candidate may replace a baseline."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.identity import serve_settings
from eval_jobs.types import EvalRecord
from tracker.app.steps.comparing import noise_of_run
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.changed import not_found
from tracker.domain.gate.decision import gate
from tracker.domain.gate.proposal import CHECKPOINTS, ProposedPolicy, proposed_policy
from tracker.domain.gate.rules import GatePolicy
from tracker.domain.gate.types import GateCase, GateReport
from tracker.domain.records.branches import branches_of
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.display import count_text, names_text
from tracker.domain.records.policy import Policy
from tracker.domain.scores.known import content_of
from tracker.domain.scores.series import series_key
from tracker.ports import MeasurementStore, RecordStore


def gathered(
    candidate: EvalRecord,
    baseline: EvalRecord,
    history: MeasurementStore,
    policy: GatePolicy,
    min_coverage: float = Policy.min_coverage,
) -> GateCase:
    """Return the case of two records, with the jitter of the candidate's run and calibrations of the benchmarks.

    `min_coverage` is that of the run's verdicts, whose checkpoints show the jitter.

    Raises:
        ConfigError: a setting that the policy declares as changed is the same on both sides.
        StoreError: earlier samples of the run are missing or damaged.
    """
    same = not_found(baseline, candidate, policy.changed)
    if same:
        hint = "evaluate the candidate with the changed settings: pass its folder, not its step"
        raise ConfigError(f"{same[0]} is declared as changed but is the same on both sides", hint=hint)
    known = noise_of_run(candidate.plan.checkpoint.run_id, history, Policy(min_coverage=min_coverage))
    own = {series_key(candidate.plan, result) for result in candidate.results}
    jitters = {key: jitter for key, jitter in known.jitters.items() if key in own}
    asked = {outcome.benchmark for outcome in (*baseline.outcomes, *candidate.outcomes)}
    noise = RunNoise(jitters=jitters, calibrations=tuple(_about(known.calibrations, asked)))
    if policy.latency:
        candidate = _timed(candidate, history)
    return GateCase(baseline=baseline, candidate=candidate, policy=policy, noise=noise)


def gate_of(case: GateCase) -> GateReport:
    """Return the report of a case. Pure."""
    return gate(case.baseline, case.candidate, case.policy, case.noise)


def proposed(run_id: str, names: Sequence[str], history: MeasurementStore, policy: GatePolicy) -> ProposedPolicy:
    """Return a policy for the benchmarks `names` from the newest checkpoints of a run.

    Raises:
        ConfigError: fewer than two checkpoints were evaluated on whole benchmarks, or no benchmark has enough samples.
        StoreError: samples of the run are missing or damaged.
    """
    newest = _whole_checkpoints(history.records(run_id), names)[-CHECKPOINTS:]
    if len(newest) < 2:
        raise ConfigError(
            f"{run_id} has {count_text(len(newest), 'evaluated checkpoint')}, and a policy needs two",
            hint="evaluate another one with `tracker watch`, `backfill` or `evaluate`: two show how many answers flip",
        )
    noise = noise_of_run(run_id, history, Policy(min_coverage=policy.otherwise.min_coverage))
    found = proposed_policy([_whole(record, history) for record in newest], names, noise, policy.alpha)
    if not found.gated:
        small = names_text([f"{rule.benchmark} ({rule.samples})" for rule in found.rules])
        raise ConfigError(
            f"too few samples for a gate: {small}",
            hint="raise `limit` or use a larger benchmark: 100 samples exclude a loss of about 10 points",
        )
    return found


def _whole_checkpoints(records: Sequence[EvalRecord], names: Sequence[str]) -> list[EvalRecord]:
    """Return the newest record of each checkpoint of the run's newest branch, if one of the benchmarks is complete."""
    branches = branches_of(record.plan.checkpoint for record in records)
    by_step: dict[int, EvalRecord] = {}
    for record in sorted(records, key=lambda record: record.finished_at):
        is_whole = any(one.benchmark in names and not one.left_out for one in record.results)
        if is_whole and branches.left_by(record.plan.checkpoint) is None:
            by_step[record.plan.checkpoint.step] = record
    return [by_step[step] for step in sorted(by_step)]


def _whole(bare: EvalRecord, records: RecordStore) -> EvalRecord:
    record = records.record(bare.plan.id)
    if record is None:
        what = f"missing results of step {bare.plan.checkpoint.step}"
        raise StoreError(what, hint="restore the database from a backup")
    return record


def _timed(record: EvalRecord, records: RecordStore) -> EvalRecord:
    """Return the record with the latency of its checkpoint; the rest of a screen and known results are not timed."""
    if record.probes:
        return record
    plan, newest = record.plan, record
    for known in records.records(plan.checkpoint.run_id):
        is_same = content_of(known.plan.checkpoint) == content_of(plan.checkpoint)
        is_same = is_same and serve_settings(known.plan.serve) == serve_settings(plan.serve)
        if known.probes and is_same and (newest is record or known.finished_at > newest.finished_at):
            newest = known
    return replace(record, probes=newest.probes)


def _about(calibrations: Iterable[Calibration], benchmarks: Collection[str]) -> Iterator[Calibration]:
    """Yield calibrations restricted to some benchmarks, so that a bundle discloses no others."""
    for one in calibrations:
        asked = tuple(twice for twice in one.benchmarks if twice.benchmark in benchmarks)
        if asked:
            suite = one.plan.suite
            kept = replace(suite, benchmarks=tuple(b for b in suite.benchmarks if b.name in benchmarks))
            failures = tuple(failure for failure in one.failures if failure.benchmark in benchmarks)
            yield replace(one, plan=replace(one.plan, suite=kept), benchmarks=asked, failures=failures)
