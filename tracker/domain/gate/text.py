"""Texts shared by all outputs of a gate. Pure; they are not escaped for Markdown, XML or GitHub."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracker.domain.compare.examples import Example
from tracker.domain.compare.view import ComparedBenchmark, Side
from tracker.domain.gate.contexts import contexts_text
from tracker.domain.gate.rules import LatencyLimit
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.gate.ways_out import is_gain
from tracker.domain.records import display
from tracker.domain.records.reason_text import neutral_lines

GATE_SYMBOLS: Mapping[GateWord, str] = {
    GateWord.REGRESSION: "▼",
    GateWord.MISSING: "?",
    GateWord.INCOMPARABLE: "≠",
    GateWord.INCONCLUSIVE: "~",
    GateWord.PASS: "✓",
}
"""Distinguishable without colour."""

_COMMAND_AT_START = re.compile(r"^(\s*)::", re.MULTILINE)
NAME_CHARS = 80
REASON_CHARS = 400
QUOTED_CHARS = 300
_DIGEST_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class GateCheck:
    """One check of a result, on a benchmark or a latency limit."""

    name: str
    required: bool
    word: GateWord
    reason: str
    compared: ComparedBenchmark | None = None
    """None: a latency limit, or nothing could be compared."""
    alpha_test: float = 0.0
    """Level of the test in `compared`."""
    contexts: str = ""
    """`122 passages`; empty: each sample counts alone."""
    warning: str = ""

    @property
    def kind(self) -> str:
        """`required` or `advisory`."""
        return "required" if self.required else "advisory"

    @property
    def gain(self) -> str:
        """`▲ gain` if the interval of the change leaves out 0 on that side, else empty."""
        is_shown = self.compared is not None and is_gain(self.compared.comparison)
        return "▲ gain" if is_shown else ""


def checks_of(report: GateReport) -> tuple[GateCheck, ...]:
    """Return all checks, benchmarks first; names and reasons are cleaned, on one line and of bounded length."""
    benchmarks = tuple(
        GateCheck(
            name=name_text(check.benchmark),
            required=check.required,
            word=check.word,
            reason=short_reason(check.reason),
            compared=check.compared,
            alpha_test=check.alpha_test,
            contexts="" if check.clusters.contexts is None else contexts_text(check.clusters.contexts),
            warning=short_reason(check.clusters.warning),
        )
        for check in report.benchmarks
    )
    return benchmarks + tuple(
        GateCheck(
            name=limit_text(check.limit),
            required=check.limit.required,
            word=check.word,
            reason=short_reason(check.reason),
        )
        for check in report.latency
    )


def scores_and_change_text(compared: ComparedBenchmark) -> str:
    """Return both scores, the change with its 95 % interval, and the one-sided p of a loss."""
    p = display.p_value_text(compared.comparison.p_worse)
    return f"{scores_text(compared)}, {gate_change_text(compared)}, {p}"


def sides_text(report: GateReport) -> str:
    """Return `run@200 against run@100`; digests distinguish checkpoints with the same name."""
    new, old = report.candidate, report.baseline
    is_same_name = (new.run_id, new.step) == (old.run_id, old.step)
    with_digest = is_same_name and new.digest != old.digest
    return f"{_side(new, with_digest=with_digest)} against {_side(old, with_digest=with_digest)}"


def deciding_text(report: GateReport) -> str:
    """Return the required checks that decided: `decided by facts and sums`, or `passed 3 required checks`."""
    required = [check for check in checks_of(report) if check.required]
    if not required:
        if not checks_of(report):
            return "nothing was measured and no check is required"
        return "every check is advisory (required = false)"
    if report.word is GateWord.PASS:
        return f"passed {display.count_text(len(required), 'required check')}"
    return f"decided by {display.names_text([check.name for check in required if check.word is report.word])}"


def changed_lines(report: GateReport) -> tuple[str, ...]:
    """Return the intended differences, and those without effect on scores, one cleaned line each."""
    intended = (f"intended difference: {short_reason(phrase)}" for phrase in report.changed)
    return (*intended, *map(short_reason, neutral_lines(report.neutral)))


def warning_lines(report: GateReport) -> tuple[str, ...]:
    """Return why samples look clustered where the policy says that they are not, one cleaned line each."""
    return tuple(f"warning: {check.name}: {check.warning}" for check in checks_of(report) if check.warning)


def alpha_text(report: GateReport) -> str:
    """Return the error rate of a REGRESSION, as text."""
    return f"family-wise error rate {display.p_text(report.alpha)} over the required benchmarks (Holm correction)"


def scores_text(one: ComparedBenchmark) -> str:
    """Return `0.900 → 0.840`, baseline first."""
    return f"{display.score_text(one.before.mean)} → {display.score_text(one.after.mean)}"


def answered_text(one: ComparedBenchmark, contexts: str = "", *, between: str = ", ") -> str:
    """Return `n = 1000`, or `97 % of 1000` if not all samples have a score on both sides, and their clusters."""
    before, after = one.before.coverage, one.after.coverage
    text = f"n = {one.comparison.n_common}"
    if not before == after == 1:
        text = f"{display.percent_text(min(before, after))} of {one.after.planned}"
    return f"{text}{between}{contexts}" if contexts else text


def gate_change_text(one: ComparedBenchmark) -> str:
    """Return the change with its 95 % interval; positive is better."""
    change = one.comparison
    delta, low, high = map(display.signed_text, (change.delta, change.ci_low, change.ci_high))
    return f"{delta} [{low}, {high}]"


def level_text(one: ComparedBenchmark, alpha_test: float) -> str:
    """Return the p-value that decides, and the level that it is compared with."""
    alone = ", from samples alone" if one.is_jitter_unknown else ""
    return f"one-sided {short_level_text(one, alpha_test)}{alone}"


def short_level_text(one: ComparedBenchmark, alpha_test: float) -> str:
    """Return the same for a column whose heading contains `one-sided`."""
    return f"{display.p_value_text(one.comparison.p_worse)}, level {display.p_text(alpha_test)}"


def lost_and_gained_text(one: ComparedBenchmark) -> str:
    """Return `60/2`: samples lost and gained."""
    return f"{one.comparison.n_lost}/{one.comparison.n_gained}"


def limit_text(limit: LatencyLimit) -> str:
    """Return `ttft p95, load default`; without the limit, so that the name does not change with the limit."""
    return f"{limit.metric} p{limit.quantile * 100:g}, load {name_text(limit.load)}"


def loss_examples(check: GateCheck) -> tuple[Example, ...]:
    """Return lost samples of a regression; empty for any other result."""
    if check.word is GateWord.REGRESSION and check.compared is not None:
        return check.compared.lost
    return ()


def sample_lines(example: Example) -> Iterable[str]:
    """Yield the four parts of a lost sample, each with its line breaks and of bounded length."""
    parts = {
        "prompt": example.prompt,
        "expected": example.target,
        "before": example.answer_before,
        "after": example.answer_after,
    }
    for name, text in parts.items():
        shown = (
            "(not kept)" if text is None else display.shortened(display.clean(text).strip(), QUOTED_CHARS) or "(empty)"
        )
        yield f"{name}: {shown}"


def no_command(document: str) -> str:
    """Return XML or Markdown without GitHub workflow commands, in case it is printed in a workflow."""
    return _COMMAND_AT_START.sub(r"\1&#58;:", document).replace("##[", "#&#35;[")


def name_text(name: str) -> str:
    """Return an untrusted name, cleaned, on one line and of bounded length."""
    return display.shortened(display.one_line(name), NAME_CHARS) or "(no name)"


def short_reason(reason: str) -> str:
    """Return a reason, which may quote error messages, cleaned, on one line and of bounded length."""
    return display.shortened(display.one_line(reason), REASON_CHARS)


def _side(side: Side, *, with_digest: bool) -> str:
    digest = f":{display.one_line(side.digest)[:_DIGEST_SHOWN]}" if with_digest else ""
    return f"{name_text(side.run_id)}@{side.step}{digest}"
