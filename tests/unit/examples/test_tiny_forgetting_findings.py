"""The demo says honestly whether the tracker found what was to be found."""

from examples.tiny_forgetting.findings import Report, check


def report(step: int, **skills: tuple[float | None, str]) -> Report:
    verdicts = [{"benchmark": name, "score": score, "word": word} for name, (score, word) in skills.items()]
    return {"step": step, "verdicts": verdicts}


FORGETTING = [
    report(600, facts=(0.98, "improved"), sums=(0.8, "improved"), reversal=(0.0, "inconclusive")),
    report(700, facts=(0.0, "regressed"), sums=(0.0, "regressed"), reversal=(0.2, "improved")),
    report(900, facts=(0.0, "forgotten"), sums=(0.0, "forgotten"), reversal=(1.0, "improved")),
]


def test_each_skill_that_got_its_verdict_is_as_expected_with_its_scores_and_step() -> None:
    findings = check(FORGETTING)
    assert all(finding.as_expected for finding in findings)
    assert findings[0].sentence() == (
        "facts: 0.98 at step 600, 0.00 at step 900; first reported as forgotten at step 900"
    )


def test_reports_may_come_in_any_order() -> None:
    assert check(FORGETTING[::-1]) == check(FORGETTING)


def test_a_skill_that_was_not_flagged_is_said_plainly() -> None:
    findings = check(FORGETTING[:2])
    assert [finding.as_expected for finding in findings] == [False, False, True]
    assert findings[1].sentence() == (
        "sums: expected forgotten, but it was NOT reported (0.80 at step 600, 0.00 at step 700)"
    )


def test_an_improvement_in_phase_1_does_not_count_for_reversal() -> None:
    findings = check([report(500, reversal=(0.1, "improved")), report(1000, reversal=(0.1, "inconclusive"))])
    assert not findings[2].as_expected


def test_a_skill_without_any_score_is_no_success_and_no_crash() -> None:
    assert [f.as_expected for f in check([])] == [False] * 3
    failed = check([report(700, facts=(None, "missing"))])[0]
    assert failed.sentence() == "facts: expected forgotten, but it has no score"


def test_the_level_before_phase_2_is_the_best_of_phase_1() -> None:
    reports = [report(500, facts=(1.0, "improved")), report(600, facts=(0.9, "inconclusive")), *FORGETTING[1:]]
    assert "1.00 at step 500, 0.00 at step 900" in check(reports)[0].sentence()
