"""The page of one checkpoint: what it is held against, what changed, how it was served and what it cost."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given

from dashboards.data.checkpoint import CheckpointData
from dashboards.page.checkpoint import collect_checkpoint
from dashboards.page.html import render_checkpoint
from dashboards.page.run import checkpoint_file_name
from dashboards.views.checkpoint import ScoreRow, build_checkpoint_view
from eval_jobs.errors import StoreError
from eval_jobs.types import Cost, EvalRecord, EvalResult
from tests.fakes.history import FakeHistory
from tests.judged_run import judged_run
from tests.records import RecordedRun, forgetting_run
from tests.reports import MADE_AT, checkpoint_data, sources_of
from tests.unit.dashboards.page.test_html import ANY_TEXT, check_sound, parsed
from tracker.domain.records.reasons import Failed

RUN = forgetting_run()
BY_STEP = {report.step: report for report in RUN.reports}


def html_of(data: CheckpointData) -> str:
    return render_checkpoint(build_checkpoint_view(data), version="0.1.0")


def rows_of(run: RecordedRun, step: int) -> dict[str, ScoreRow]:
    return {row.benchmark: row for row in build_checkpoint_view(checkpoint_data(run, step)).scores}


def test_a_score_stands_beside_the_one_before_and_beside_its_best() -> None:
    facts = rows_of(RUN, 1000)["facts"]
    assert facts.word == "forgotten"
    assert facts.before.where == "step 900"
    assert facts.best.where == "step 600"
    assert facts.best.change.startswith("\N{MINUS SIGN}0.")
    assert "lost" in facts.best.flips
    assert facts.interval == "(0.000 to 0.079)"


def test_the_score_of_the_best_block_is_the_mean_of_its_checkpoints() -> None:
    last = RUN.reports[-1]
    widened = tuple(
        replace(v, comparisons=tuple(replace(c, baseline_steps=(500, 600)) for c in v.comparisons))
        for v in last.verdicts
    )
    run = replace(RUN, reports=(*RUN.reports[:-1], replace(last, verdicts=widened)))
    facts = rows_of(run, 1000)["facts"]
    scores = [v.score for step in (500, 600) for v in BY_STEP[step].verdicts if v.benchmark == "facts"]
    assert facts.best.where == "steps 500 to 600"
    assert facts.best.score == f"{sum(s for s in scores if s is not None) / 2:.3f}"


def test_the_first_screen_says_what_to_type() -> None:
    data = checkpoint_data(RUN, 700)
    view = build_checkpoint_view(data)
    commands = [
        "tracker compare tiny-forgetting@600 tiny-forgetting@700",
        "tracker accept tiny-forgetting@700 facts --reason WHY",
    ]
    assert [command for _, command in view.heading.advice] == commands
    assert all(f"<code>{command}</code>" in html_of(data) for command in commands)
    assert build_checkpoint_view(replace(data, left_for=600)).heading.advice == ()


def test_the_first_checkpoint_is_held_against_nothing() -> None:
    view = build_checkpoint_view(checkpoint_data(RUN, 100))
    assert (view.before_step, view.changes.listed) == (None, ())
    assert {row.before.why_not for row in view.scores} == {"first checkpoint"}
    assert "Skip to scores" in html_of(checkpoint_data(RUN, 100))


def test_what_cannot_be_held_against_the_one_before_says_why() -> None:
    assert "no result at step 300" in rows_of(RUN, 400)["sums"].before.why_not  # it failed there


def test_lost_and_gained_answers_stand_side_by_side() -> None:
    view = build_checkpoint_view(checkpoint_data(RUN, 700))
    one = next(one for one in view.changes.listed if one.benchmark == "facts" and not one.is_best)
    lost = next(sample for sample in one.samples if sample.kind == "lost")
    assert one.before_step == 600
    assert lost.prompt.startswith("What colour is the")
    assert lost.before.heading == "✓ Correct at step 600"
    assert lost.before.answer == lost.target
    assert lost.after.heading == "✗ Incorrect at step 700"
    assert lost.after.answer != lost.target
    assert html_of(checkpoint_data(RUN, 700)).count("✗ Incorrect at step 700") >= 3


def test_what_was_lost_long_ago_is_shown_against_the_best_block() -> None:
    changes = build_checkpoint_view(checkpoint_data(RUN, 1000)).changes.listed
    since = {(one.benchmark, one.is_best): one.before_step for one in changes}
    assert since["facts", True] == 600
    assert all(step == 900 for (_, is_best), step in since.items() if not is_best)


def test_only_the_path_to_a_checkpoint_counts_for_it() -> None:
    """Training went back to 300 and saved it anew: 400 to 1000 of the first try are no part of the way to it."""
    old = RUN.records[2]
    checkpoint = replace(
        old.plan.checkpoint, digest="f" * 64, ready_at=RUN.records[-1].plan.checkpoint.ready_at + timedelta(hours=1)
    )
    again = replace(old, plan=replace(old.plan, id="again", checkpoint=checkpoint))
    report = replace(RUN.reports[2], plan_id="again", checkpoint=checkpoint)
    run = replace(RUN, records=(*RUN.records, again), reports=(*RUN.reports, report))
    data = collect_checkpoint(report, sources_of(run), now=MADE_AT)
    assert data.before is not None
    assert data.before.plan.checkpoint.step == 200
    assert data.left_for is None
    left = collect_checkpoint(RUN.reports[-1], sources_of(run), now=MADE_AT)
    assert left.left_for == 300
    assert left.before is not None
    assert left.before.plan.checkpoint.step == 900
    assert "discarded when training restarted from a step before 300" in html_of(left)


def test_the_best_checkpoint_of_a_run_is_named_so() -> None:
    named = {step: checkpoint_data(RUN, step).titles for step in (600, 1000)}
    assert "best-facts" in named[600]
    assert "best-facts" not in named[1000]


def test_cost_and_certificate_are_shown() -> None:
    record = RUN.records[-1]
    assert record.engine is not None
    engine = replace(record.engine, load_method="swap", load_reason="certified", certificate="cb71f6fd35e4aa")
    cost = Cost(loading_s=1.5, evaluating_s=30.0, probing_s=8.0, input_tokens=40_000, output_tokens=5_200, gpu_s=39.5)
    run = replace(RUN, records=(*RUN.records[:-1], replace(record, engine=engine, cost=cost)))
    texts = parsed(html_of(checkpoint_data(run, 1000))).texts
    assert "swapped into the running engine" in " ".join(texts)
    assert "cb71f6fd35e4: answers bit-identical to those of a cold start" in texts
    assert {"39.5 s", "1.5 s", "30.0 s", "8.0 s", "40.0 k input, 5.2 k output"} <= set(texts)


def test_a_checkpoint_whose_results_are_gone_is_an_error() -> None:
    sources = replace(sources_of(RUN), history=FakeHistory())
    with pytest.raises(StoreError, match="missing results of step 1000 of tiny-forgetting"):
        collect_checkpoint(RUN.reports[-1], sources, now=MADE_AT)


def test_answers_that_were_given_up_are_said_to_be_gone() -> None:
    outcomes = tuple(
        replace(o, has_texts=False, samples=tuple(replace(s, answer="") for s in o.samples))
        if isinstance(o, EvalResult)
        else o
        for o in RUN.records[5].outcomes
    )
    run = replace(RUN, records=(*RUN.records[:5], replace(RUN.records[5], outcomes=outcomes), *RUN.records[6:]))
    assert "(not kept)" in parsed(html_of(checkpoint_data(run, 700))).texts


def test_other_weights_of_the_same_step_have_a_page_of_their_own() -> None:
    checkpoint = RUN.records[0].plan.checkpoint
    names = {checkpoint_file_name(checkpoint), checkpoint_file_name(replace(checkpoint, digest="f" * 64))}
    assert len(names) == 2
    assert all(name.startswith("tiny-forgetting@100-") for name in names)


def hostile(text: str) -> CheckpointData:
    """Return a checkpoint of which every text that comes from outside is `text`."""
    run = forgetting_run(run_id=text, samples=12)
    records = tuple(_said(record, text) for record in run.records)
    failed = Failed(message=text, error="E-X")
    reports = tuple(replace(r, verdicts=tuple(replace(v, reason=failed) for v in r.verdicts)) for r in run.reports)
    return replace(checkpoint_data(replace(run, records=records, reports=reports), 700), run_page="run.html")


def _said(record: EvalRecord, text: str) -> EvalRecord:
    assert record.engine is not None
    outcomes = tuple(
        replace(o, samples=tuple(replace(s, prompt=text, target=text, answer=text, subset=text) for s in o.samples))
        if isinstance(o, EvalResult)
        else replace(o, message=text, hint=text)
        for o in record.outcomes
    )
    engine = replace(record.engine, name=text, version=text, load_reason=text, certificate=text, device=text)
    return replace(record, outcomes=outcomes, engine=engine)


PLAIN = parsed(html_of(hostile("xy")))


@pytest.mark.slow
@given(ANY_TEXT)
@example("</title></style></svg><script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
@example("{{ 7 * 7 }}{% raw %}")
def test_no_text_changes_the_structure_of_the_page(text: str) -> None:
    assert parsed(html_of(hostile(f"x{text}y"))).shape == PLAIN.shape


def test_a_page_is_sound_and_loads_nothing() -> None:
    pages = [checkpoint_data(run, step) for run, step in ((RUN, 100), (RUN, 1000), (judged_run(), 800))]
    for data in (*pages, hostile("<script>alert(1)</script>")):
        check_sound(html_of(data), beside=("run.html",))
