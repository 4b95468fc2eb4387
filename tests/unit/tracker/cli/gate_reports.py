"""Answers of a gate for the tests of its outputs: every word, and texts that try to disturb the reader."""

from dataclasses import replace
from functools import cache

from tests.unit.tracker.domain.making import failure_of, record_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.decision import gate
from tracker.domain.gate.rules import BenchmarkRule, Clusters, GatePolicy, LatencyLimit
from tracker.domain.gate.types import GateReport
from tracker.domain.records.types import LatencyMetric

SAME = [1.0] * 900 + [0.0] * 100
LOST = [0.0] * 60 + SAME[60:]
FEW = SAME[880:930]
LIMIT = LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.95, max_ms=200, required=False)

HOSTILE = (
    "a | b `c` ``` **d** _e_ ~~f~~ [g](javascript:h) ![i](//j) $k$ \\",
    "<script>alert(1)</script></pre></details><!-- ]]> &amp; &#124;",
    "one\ntwo\r\nthree\rfour\u2028five\x85six\x0b::error::seven",
    "\x1b[31mred\x1b[0m\x1b]8;;http://x\x07 \u202egnp.exe",
    "NUL \x00 lone \ud83d \udc00 no character \ufffe \uffff",
    "::stop-commands::x %0A::error title=x,y::z ##[error]z",
    "@everybody #1 GH-1 =+cmd",
    "x|" * 5_000,
)


@cache
def answer() -> GateReport:
    """Regressions, required and advisory, a pass, few samples, a failure, and what was not measured."""
    point = BenchmarkRule(min_effect=0.01)
    rules = {"absent": point, "style": replace(point, required=False)}
    policy = GatePolicy(otherwise=point, benchmarks=rules, latency=(LIMIT,))
    before = record_of(100, {"sums": SAME, "few": FEW, "same": SAME, "style": SAME, "broken": SAME})
    after = record_of(200, {"sums": LOST, "few": FEW, "same": SAME, "style": LOST, "broken": failure_of("broken")})
    return gate(before, after, policy, RunNoise())


@cache
def passed() -> GateReport:
    return gate(record_of(100, {"sums": SAME}), record_of(200, {"sums": SAME}), GatePolicy(), RunNoise())


@cache
def gained() -> GateReport:
    """A gain in 250 passages of four questions, and passages that the policy ignores."""
    passages = [f"passage:{at // 4}" for at in range(1000)]
    before = record_of(100, {"sums": LOST, "facts": SAME}, clusters=passages)
    after = record_of(200, {"sums": SAME, "facts": SAME}, clusters=passages)
    policy = GatePolicy(benchmarks={"facts": BenchmarkRule(clusters=Clusters.NONE)})
    return gate(before, after, policy, RunNoise())


def with_text(text: str) -> GateReport:
    """The same answer with `text` wherever a text comes from a model or a file."""
    report = answer()
    checks = []
    for check in report.benchmarks:
        one = check.compared
        if one is not None:
            lost = tuple(
                replace(e, sample_id=text, prompt=text, target=text, answer_before=text, answer_after=None)
                for e in one.lost
            )
            one = replace(one, benchmark=text, lost=lost)
        checks.append(replace(check, benchmark=text, reason=text, compared=one))
    limits = tuple(replace(one, limit=replace(one.limit, load=text), reason=text) for one in report.latency)
    return replace(
        report,
        candidate=replace(report.candidate, run_id=text, source_uri=text),
        baseline=replace(report.baseline, run_id=text, source_uri=text),
        benchmarks=tuple(checks),
        latency=limits,
    )
