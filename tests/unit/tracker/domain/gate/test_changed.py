"""What pairs when the prompt or the engine is what is gated, on records whose truth is known."""

from dataclasses import replace

import pytest

from eval_jobs.types import EngineInfo, EngineKind, EvalRecord, EvalResult, ServeSpec, Suite
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.changed import asked_alike, not_found
from tracker.domain.gate.decision import gate
from tracker.domain.gate.rules import GatedChange, GatePolicy
from tracker.domain.gate.text import changed_lines
from tracker.domain.gate.types import GateReport, GateWord

PROMPT, ENGINE = GatedChange.PROMPT, GatedChange.ENGINE
RIGHT = [1.0] * 900 + [0.0] * 100
OWN = suite_of(["facts", "sums"])


def prompted(template: str, suite: Suite = OWN) -> Suite:
    """Return a suite with another prompt for `facts`."""
    facts, sums = suite.benchmarks
    return replace(suite, benchmarks=(replace(facts, prompt_template=template), sums))


def asked(scores: list[float], suite: Suite, name: str = "facts", serve: ServeSpec | None = None) -> EvalRecord:
    """Return a record whose questions of `name` have other ids, as they have under another prompt."""
    record = record_of(2, {"facts": scores, "sums": RIGHT}, suite=suite, digest="d1", serve=serve)
    return replace(record, outcomes=tuple(renamed(o) if o.benchmark == name else o for o in record.outcomes))


def renamed(outcome: object) -> EvalResult:
    assert isinstance(outcome, EvalResult)
    return replace(outcome, samples=tuple(replace(s, sample_id=f"other {s.sample_id}") for s in outcome.samples))


def answer(before: EvalRecord, after: EvalRecord, *changed: GatedChange) -> GateReport:
    return gate(before, after, GatePolicy(changed=changed), RunNoise())


BEFORE = record_of(2, {"facts": RIGHT, "sums": RIGHT}, suite=OWN, digest="d1")
LOST = [0.0] * 50 + RIGHT[50:]


def test_questions_under_another_prompt_pair_by_their_place_and_the_answer_names_the_change() -> None:
    after = asked(LOST, prompted("Think: {question}"))
    assert answer(BEFORE, after).word is GateWord.INCOMPARABLE
    report = answer(BEFORE, after, PROMPT)
    assert report.word is GateWord.REGRESSION
    assert report.changed == ("prompt_template is Think: {question}, was the default (facts)",)
    facts = next(check for check in report.benchmarks if check.benchmark == "facts")
    assert facts.compared is not None
    assert (facts.compared.comparison.n_common, facts.compared.comparison.n_lost) == (1000, 50)
    assert [example.sample_id for example in facts.compared.lost] == ["other s0", "other s1", "other s2"]
    assert answer(BEFORE, asked(RIGHT, prompted("Think: {question}")), PROMPT).word is GateWord.PASS


def test_nothing_but_what_is_named_may_differ() -> None:
    warm = replace(OWN, generation=replace(OWN.generation, temperature=0.7))
    report = answer(BEFORE, asked(RIGHT, prompted("Think: {question}", warm)), PROMPT)
    facts = next(check for check in report.benchmarks if check.benchmark == "facts")
    assert (report.word, facts.word) == (GateWord.INCOMPARABLE, GateWord.INCOMPARABLE)
    assert "temperature is 0.7, was 0.0" in facts.reason
    both = asked(RIGHT, prompted("Think: {question}"), serve=ServeSpec(dtype="float16"))
    assert answer(BEFORE, both, PROMPT).word is GateWord.INCOMPARABLE
    assert answer(BEFORE, both, ENGINE).word is GateWord.INCOMPARABLE
    report = answer(BEFORE, both, PROMPT, ENGINE)
    assert report.word is GateWord.PASS
    assert report.changed[1:] == ("serve.dtype is float16, was auto",)


def test_questions_that_are_not_known_to_be_the_same_never_pair() -> None:
    after = asked(RIGHT, prompted("Think: {question}"))
    facts, sums = after.outcomes
    assert isinstance(facts, EvalResult)
    fewer = replace(facts, samples=facts.samples[:-1])
    other = replace(facts, samples=(replace(facts.samples[0], target="another"), *facts.samples[1:]))
    part = replace(facts, left_out=500)
    other_answer = "question 1 of subset all has a different expected answer"
    other_number = "the questions differ (1000 in the baseline, 999 in the candidate)"
    for outcome, why in ((fewer, other_number), (other, other_answer), (part, "only screened")):
        report = answer(BEFORE, replace(after, outcomes=(outcome, sums)), PROMPT)
        assert report.word is GateWord.INCOMPARABLE
        reasons = {check.benchmark: check.reason for check in report.benchmarks}
        assert why in reasons["facts"]


@pytest.mark.parametrize(
    ("served", "word"),
    [(ServeSpec(engine=EngineKind.SGLANG), "serve.engine is sglang, was vllm"), (ServeSpec(args=("--fp8",)), "--fp8")],
)
def test_another_engine_is_gated_on_the_same_questions(served: ServeSpec, word: str) -> None:
    after = record_of(2, {"facts": LOST, "sums": RIGHT}, suite=OWN, digest="d1", serve=served)
    assert answer(BEFORE, after).word is GateWord.INCOMPARABLE
    report = answer(BEFORE, after, ENGINE)
    assert report.word is GateWord.REGRESSION
    assert word in report.changed[0]


def test_another_version_of_the_engine_is_a_change_although_no_setting_differs() -> None:
    old, new = (EngineInfo(name="vllm", version=v, load_method="cold", load_s=1.0, log="") for v in ("0.32", "0.33"))
    before, after = replace(BEFORE, engine=old), replace(BEFORE, engine=new)
    assert answer(before, after, ENGINE).changed == ("engine is vllm 0.33, was vllm 0.32",)
    assert not_found(before, after, (ENGINE, PROMPT)) == (PROMPT,)
    assert not_found(before, before, (ENGINE,)) == (ENGINE,)
    assert not_found(BEFORE, asked(RIGHT, prompted("x {question}")), (PROMPT, ENGINE)) == (ENGINE,)


def test_settings_that_cannot_change_a_score_are_named_and_need_no_permission() -> None:
    faster = replace(prompted("Think: {question}"), concurrency=64)
    served = ServeSpec(args=("-tp", "2"))
    after = asked(LOST, faster, serve=served)
    assert answer(BEFORE, after, PROMPT).word is GateWord.REGRESSION
    same = record_of(2, {"facts": LOST, "sums": RIGHT}, suite=replace(OWN, concurrency=64), digest="d1", serve=served)
    report = answer(BEFORE, same)
    assert report.word is GateWord.REGRESSION
    (line,) = changed_lines(report)
    assert line.startswith(
        "different, without effect on scores: serve.args --tensor-parallel-size is 2, was the default;"
    )
    assert line.endswith("; concurrency (requests in flight) is 64, was 8")
    assert answer(BEFORE, same, ENGINE).changed == ("serve.args --tensor-parallel-size is 2, was the default",)


def test_without_a_named_change_nothing_is_touched() -> None:
    after = asked(RIGHT, prompted("Think: {question}"))
    assert asked_alike(BEFORE, after, ()).baseline is BEFORE


def test_repeats_of_a_question_keep_their_place() -> None:
    def twice(record: EvalRecord, mark: str) -> EvalRecord:
        facts, sums = record.outcomes
        assert isinstance(facts, EvalResult)
        samples = [
            replace(sample, sample_id=f"{mark}{i}", target=f"t{i}", repeat=repeat)
            for i, sample in enumerate(facts.samples)
            for repeat in (0, 1)
        ]
        return replace(record, outcomes=(replace(facts, samples=tuple(samples)), sums))

    before = twice(BEFORE, "a")
    after = twice(record_of(2, {"facts": LOST, "sums": RIGHT}, suite=prompted("Q {question}"), digest="d1"), "b")
    report = answer(before, after, PROMPT)
    assert report.word is GateWord.REGRESSION
    (reason,) = (check.reason for check in report.benchmarks if check.benchmark == "facts")
    assert "50 samples lost, 0 gained" in reason
