"""`tracker gate`: may a candidate take the place of a baseline?

case = gathered(candidate, baseline, history, policy)
report = gate_of(case)      # the same on every machine that has the case
"""

from __future__ import annotations

from eval_jobs.types import EvalRecord, EvalResult
from tracker.app.comparing import noise_of_run
from tracker.domain.compare import RunNoise
from tracker.domain.gate import gate
from tracker.domain.gate_rules import GatePolicy
from tracker.domain.gate_types import GateCase, GateReport
from tracker.domain.run_scores import series_key
from tracker.domain.types import Policy
from tracker.ports import History


def gathered(candidate: EvalRecord, baseline: EvalRecord, history: History, policy: GatePolicy) -> GateCase:
    """Return the case of two records, with what the history knows of the candidate's run and its benchmarks.

    Raises:
        StoreError: earlier samples of the run are missing or damaged.
    """
    sides = {candidate.plan.checkpoint.digest, baseline.plan.checkpoint.digest}
    coverage = Policy(min_coverage=policy.otherwise.min_coverage)
    known = noise_of_run(candidate.plan.checkpoint.run_id, history, coverage)
    own = {series_key(candidate.plan, o) for o in candidate.outcomes if isinstance(o, EvalResult)}
    # The same weights asked twice, by another engine perhaps, differ by nothing that training does.
    jitters = {key: jitter for key, jitter in known.jitters.items() if key in own and len(sides) == 2}
    noise = RunNoise(jitters=jitters, calibrations=known.calibrations)
    return GateCase(baseline=baseline, candidate=candidate, policy=policy, noise=noise)


def gate_of(case: GateCase) -> GateReport:
    """Return the answer. Pure."""
    return gate(case.baseline, case.candidate, case.policy, case.noise)
