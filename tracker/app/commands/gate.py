"""`tracker gate`: decides whether a candidate may replace a baseline."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from eval_jobs.errors import ConfigError
from eval_jobs.identity import serve_settings
from eval_jobs.types import EvalRecord
from tracker.app.steps.comparing import noise_of_run
from tracker.domain.best.retention import identity_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.changed import not_found
from tracker.domain.gate.decision import gate
from tracker.domain.gate.rules import GatePolicy
from tracker.domain.gate.types import GateCase, GateReport
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.types import Policy
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


def _timed(record: EvalRecord, records: RecordStore) -> EvalRecord:
    """Return the record with the latency of its checkpoint; the rest of a screen is evaluated without latency."""
    if record.probes:
        return record
    plan, newest = record.plan, record
    for known in records.records(plan.checkpoint.run_id):
        is_same = identity_of(known.plan.checkpoint) == identity_of(plan.checkpoint)
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
