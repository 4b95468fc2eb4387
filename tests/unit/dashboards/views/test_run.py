from dataclasses import replace
from datetime import timedelta

import pytest

from dashboards.data.run import Training
from dashboards.views.run import Tile, build_view
from dashboards.views.tables import RECENT_ROWS, VerdictRow
from dashboards.views.training import since_last_text, training_view
from eval_jobs.errors import ServerDied
from eval_jobs.run import record_of_failure
from eval_jobs.types import ProbeResult
from tests.drops import DROP, with_newest
from tests.log_reading import READ_AT, read_incident
from tests.records import RecordedRun, forgetting_run, wide_run
from tests.reports import run_data
from tests.verdicts import reports_of
from tracker.domain.best.choice import champions_of
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.stored import progress_of
from tracker.domain.records.policy import Phase
from tracker.domain.records.reasons import NothingEarlier
from tracker.domain.records.types import Baseline, CurvePoint, VerdictWord

NO_BEST = "no best checkpoint: none without a loss has a score for every benchmark"
RUN = forgetting_run()
DATA = run_data(RUN, unfinished=2)
VIEW = build_view(DATA)


def _row(step: int) -> VerdictRow:
    return next(row for row in VIEW.table.recent if row.step == step)


def test_the_title_counts_what_is_there_and_what_is_not() -> None:
    assert VIEW.heading.facts == (
        "10 checkpoints evaluated, steps 100 to 1000",
        "3 benchmarks",
        NO_BEST,
        "1 checkpoint not evaluated",
        "1 result missing",
        "2 evaluations pending",
    )
    assert VIEW.heading.made_at == "2026-03-14 12:00 UTC"


def test_a_run_of_one_checkpoint_is_told_in_the_singular() -> None:
    one = RecordedRun(run_id="r", records=RUN.records[:1], reports=RUN.reports[:1])
    assert build_view(run_data(one)).heading.facts == ("1 checkpoint evaluated, step 100", "3 benchmarks", NO_BEST)


def test_checkpoints_without_any_score_do_not_count_as_evaluated() -> None:
    failed = [
        replace(report, verdicts=tuple(replace(v, word=VerdictWord.MISSING, score=None) for v in report.verdicts))
        for report in RUN.reports[:3]
    ]
    for reports, said in (
        (failed, "3 checkpoints, none with a score, steps 100 to 300"),
        ([*RUN.reports[:2], failed[2]], "2 checkpoints evaluated, 1 without a score, steps 100 to 300"),
    ):
        run = RecordedRun(run_id=RUN.run_id, records=RUN.records[:3], reports=tuple(reports))
        assert build_view(run_data(run)).heading.facts[0] == said


def test_each_benchmark_says_what_it_fell_from_or_rose_from() -> None:
    assert [(t.benchmark, t.word, t.score, t.note) for t in VIEW.tiles] == [
        ("facts", "forgotten", "0.037", "was 0.912 at step 600"),
        ("sums", "forgotten", "0.037", "was 0.700 at step 600"),
        ("reversal", "improved", "0.988", "was 0.025 at step 100"),
    ]


def test_each_score_has_its_interval() -> None:
    assert [t.interval for t in VIEW.tiles] == ["(0.000 to 0.079)", "(0.000 to 0.079)", "(0.963 to 1.000)"]


def test_a_tile_says_what_the_newest_score_is_held_against() -> None:
    def tile(**changes: object) -> Tile:
        view = build_view(run_data(with_newest(RUN, **changes)))
        return next(tile for tile in view.tiles if tile.benchmark == "facts")

    comparisons = RUN.reports[-1].verdicts[0].comparisons
    assert tile(word=VerdictWord.SUSPECT).note == "was 0.912 at step 600"
    block = tile(comparisons=tuple(replace(c, baseline_steps=(400, 500, 600)) for c in comparisons))
    assert block.note == "was 0.793 at steps 400 to 600"
    pinned = tile(comparisons=tuple(replace(c, baseline=Baseline.PINNED) for c in comparisons))
    assert pinned.note == "vs. pinned, step 600"
    accepted = tile(word=VerdictWord.FIRST, reason=NothingEarlier(accepted_step=900), comparisons=())
    assert accepted.note == "first since its level was accepted"


@pytest.mark.parametrize("word", [VerdictWord.FORGOTTEN, VerdictWord.INCONCLUSIVE])
def test_tile_ring_and_advice_have_the_baseline_of_an_open_loss(word: VerdictWord) -> None:
    view = build_view(run_data(with_newest(RUN, drop=DROP, word=word)))
    (facts,) = (tile for tile in view.tiles if tile.benchmark == "facts")
    assert facts.note == "was 0.731 at steps 400 to 500"
    rings = {line.name: line.ring_step for line in view.curves.figures[0].panels[0].lines}
    assert rings == {"facts": 500, "sums": 600, "reversal": None}
    if word is VerdictWord.FORGOTTEN:
        assert view.heading.advice[0][1] == "tracker compare tiny-forgetting@500 tiny-forgetting@1000"


def test_who_sees_a_loss_is_told_what_to_type() -> None:
    reversal = champions_of(DATA.scores)[-1]
    champions = (replace(reversal, alias="champion", checkpoint=RUN.records[5].plan.checkpoint),)
    view = build_view(replace(DATA, run_id="it's", conclusions=replace(DATA.conclusions, champions=champions)))
    assert [command for _, command in view.heading.advice] == [
        """tracker compare 'it'"'"'s@600' 'it'"'"'s@1000'""",
        """tracker report 'it'"'"'s@600'""",
        """tracker accept 'it'"'"'s@1000' facts --reason WHY""",
    ]
    healthy = RecordedRun(run_id="r", records=RUN.records[:6], reports=RUN.reports[:6])
    assert build_view(run_data(healthy)).heading.advice == ()


def test_many_benchmarks_stand_on_paper_in_parts_of_about_one_size() -> None:
    def parts(count: int) -> list[int]:
        table = replace(VIEW.table, benchmarks=tuple(map(str, range(count))))
        return [len(part) for part in table.on_paper]

    assert [parts(0), parts(1), parts(10), parts(11), parts(50)] == [[], [1], [10], [6, 5], [10] * 5]


def test_a_first_result_and_a_missing_one_compare_with_nothing() -> None:
    early = RecordedRun(run_id="r", records=RUN.records[:1], reports=RUN.reports[:1])
    assert [t.note for t in build_view(run_data(early)).tiles] == ["first result at step 100"] * 3
    third = RecordedRun(run_id="r", records=RUN.records[:3], reports=RUN.reports[:3])
    assert build_view(run_data(third)).tiles[0].note == "no result at step 300"


def test_the_verdict_table_has_every_step_and_a_row_for_the_gap() -> None:
    assert [row.step for row in VIEW.table.recent] == [100, 200, 300, 400, 500, 550, 600, 700, 800, 900, 1000]
    assert VIEW.table.earlier == ()
    assert _row(550).cells == ()
    assert _row(550).gap == "it was deleted before it could be pinned (E-CKPT-VANISHED)"


def test_a_failure_is_missing_and_never_a_score() -> None:
    sums = _row(300).cells[1]
    assert (sums.score, sums.word) == ("-", VerdictWord.MISSING)
    assert sums.reason.startswith("no result: the server went away")


def test_a_score_of_part_of_the_samples_says_so() -> None:
    assert (_row(400).cells[0].score, _row(400).cells[0].coverage) == ("0.628", "97 %")
    assert _row(500).cells[0].coverage == ""


def test_a_benchmark_that_was_added_later_has_empty_cells_before() -> None:
    reports = tuple(replace(r, verdicts=r.verdicts[:2]) if r.step < 500 else r for r in RUN.reports)
    table = build_view(run_data(replace(RUN, reports=reports))).table
    assert table.recent[0].cells[2].word is None


def test_latency_rows_tell_failures_from_numbers() -> None:
    measured, failed = VIEW.latency.rows[6], VIEW.latency.rows[7]
    assert measured.numbers == ("35.6", "57.0", "5.8", "7.3", "217.5", "487")
    assert failed.numbers == ()
    assert failed.failure == "all 32 requests failed: connection reset by peer (E-PROBE)"


def test_requests_that_failed_are_counted_and_nothing_completed_is_no_number() -> None:
    probe = DATA.records[0].probes[0]
    assert isinstance(probe, ProbeResult)
    some = replace(probe, completed=30, failed=2)
    none = replace(probe, completed=0, failed=32, ttft_ms=None, tpot_ms=None, itl_ms=None, e2e_ms=None)
    records = (replace(DATA.records[0], probes=(some,)), replace(DATA.records[1], probes=(none,)))
    rows = build_view(replace(DATA, records=records)).latency.rows
    assert [row.requests for row in rows] == ["30, 2 failed", "0, 32 failed"]
    assert rows[1].numbers == ("-",) * 6


def test_everything_that_was_not_measured_is_listed_by_step() -> None:
    assert [(t.step, t.what, t.code) for t in VIEW.troubles] == [
        (300, "sums", "E-EVAL-ENDPOINT"),
        (550, "checkpoint", "E-CKPT-VANISHED"),
        (800, "latency, load default", "E-PROBE"),
    ]


def test_one_cause_that_took_everything_is_one_row() -> None:
    record = record_of_failure(
        RUN.records[0].plan,
        ServerDied("vLLM ended with code 1", hint="see /state/vllm.log"),
        started_at=RUN.records[0].started_at,
        finished_at=RUN.records[0].finished_at,
    )
    run = RecordedRun(run_id="r", records=(record,), reports=reports_of((record,)))
    view = build_view(run_data(run))
    assert [(t.what, t.why) for t in view.troubles] == [
        ("facts, sums, reversal and latency, load default", "vLLM ended with code 1")
    ]
    assert view.heading.headline == "facts, sums and reversal have no result at step 100"


def test_a_long_run_folds_its_earlier_steps_and_many_benchmarks_are_sorted_by_urgency() -> None:
    run = wide_run(checkpoints=50, benchmarks=11, samples=12)
    table = build_view(run_data(run)).table
    assert (len(table.recent), len(table.earlier)) == (RECENT_ROWS, 10)
    assert table.recent[-1].step == 25_000
    assert table.wide
    assert table.benchmarks[:2] == ("benchmark_03", "benchmark_10")


def test_a_run_with_only_gaps_still_has_a_report() -> None:
    view = build_view(run_data(RecordedRun(run_id="r", records=(), reports=(), gaps=RUN.gaps)))
    assert view.heading.headline == "nothing evaluated yet"
    assert view.heading.facts == ("0 checkpoints evaluated", "0 benchmarks", "1 checkpoint not evaluated")
    assert (view.curves.figures, view.tiles, view.conclusions.evidence) == ((), (), ())
    assert len(view.troubles) == 1


def test_the_section_on_the_training_has_its_speed_its_productive_time_and_the_trainers_summary() -> None:
    at, log = READ_AT, RunLog(rules=(), state=RunState(run_id="r"))
    lines = (*(f"step {step} | loss 2.5" for step in range(1, 5)), "{'train_runtime': 100.0, 'train_loss': 2.25}")
    for number, (seconds, text) in enumerate(zip((0, 10, 20, 120, 121), lines, strict=True), start=1):
        stream = Stream(name="train.log", read_at=at + timedelta(seconds=seconds))
        log.take(RawLine(number=number, text=text), stream, StreamState())
    view = training_view(Training(progress=progress_of("r", log.state, at)))
    assert view is not None
    assert view.facts == (
        *("step 4", "logs steps every 10.0 s", "productive time 42%"),
        *("train_runtime 100", "train_loss 2.25"),
    )


def test_the_curves_mark_incidents_and_a_checkpoint_names_those_since_the_one_before() -> None:
    oom = read_incident("torch.OutOfMemoryError: CUDA out of memory", step=150)
    training = Training(incidents=(oom, read_incident("KeyboardInterrupt", step=160)), checkpoints=(100, 200, 300))
    view = build_view(replace(DATA, training=training))
    assert view.curves.phases == ("GPU memory ran out from step 150",)  # what a user did is no mark
    assert [len(since_last_text(training, step)) for step in (100, 200, 300)] == [0, 2, 0]
    assert since_last_text(training, 200)[0] == "GPU memory ran out at step 150"


def test_the_curves_mark_phases_and_what_the_training_log_shows() -> None:
    rate = [1e-3, 5e-4, 1e-4, 1e-3, 5e-4]
    curve = tuple(CurvePoint(key="train/learning_rate", step=100 * at, value=value) for at, value in enumerate(rate))
    training = Training(curves=curve, phases=(Phase(name="code", from_step=150),))
    view = build_view(replace(DATA, training=training))
    assert view.curves.phases == ("code from step 150", "restart of the learning rate from step 200")
