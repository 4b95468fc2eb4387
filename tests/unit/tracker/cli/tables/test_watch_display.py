import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from eval_jobs.queue_types import QueueState, Running, Waiting
from eval_jobs.records.progress import BenchmarkCount, Progress, Stage
from eval_jobs.types import Generation, Suite
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.app.world import Tick
from tracker.cli.tables.watch_display import WatchDisplay
from tracker.config import parse_config
from tracker.domain.checkpoints.backfill import time_left_s
from tracker.domain.log.events import EventKind, run_event
from tracker.domain.records.types import Gap

WHY = "waits until 20:00 Europe/Berlin (serve.only_when.hours = 20:00-07:00)"
RECORD = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0]
SUMS = Progress(stage=Stage.EVALUATING, benchmarks=("sums",), done=1, total=3)
PAUSED = QueueState(
    waiting=(Waiting(plan_id="a", run_id="r", step=300, note=WHY), Waiting(plan_id="b", run_id="r", step=200)),
    counts={"waiting": 2},
)
LOOKING = QueueState(waiting=(Waiting(plan_id="b", run_id="r", step=200),), counts={"waiting": 1})
BUSY = QueueState(
    running=(Running(plan=RECORD.plan, worker="w", progress=SUMS, since=RECORD.started_at),), counts={"waiting": 0}
)
NOTHING = Tick(checkpoints=(), gaps=(), skipped=(), reports=(), unsent=0)


def display_of(
    tmp_path: Path, stream: io.StringIO | None = None, monotonic_s: Callable[[], float] = float
) -> WatchDisplay:
    config = parse_config(FORGETTING_TOML, tmp_path / "tracker.toml")
    return WatchDisplay(Console(file=stream or io.StringIO(), width=200), config, monotonic_s)


def bars_of(display: WatchDisplay) -> list[str]:
    """Return the lines of bars, as a terminal of 80 columns shows them."""
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system=None).print(display._progress._bars)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def shown(tmp_path: Path, *states: QueueState) -> str:
    stream = io.StringIO()
    display = WatchDisplay(
        Console(file=stream, width=200), parse_config(FORGETTING_TOML, tmp_path / "tracker.toml"), float
    )
    for state in states:
        display.show(NOTHING, state)
    return stream.getvalue()


def test_a_pause_is_said_once_with_its_reason_also_where_there_is_no_live_line(tmp_path: Path) -> None:
    assert shown(tmp_path, PAUSED, PAUSED, LOOKING, PAUSED).splitlines() == [f"   paused {WHY}"]


def test_a_pause_after_work_was_done_is_said_again(tmp_path: Path) -> None:
    assert shown(tmp_path, PAUSED, BUSY, PAUSED).count(WHY) == 2


def test_redirected_output_shows_the_progress_every_30_seconds(tmp_path: Path) -> None:
    stream, times = io.StringIO(), [0.0]
    config = parse_config(FORGETTING_TOML, tmp_path / "tracker.toml")
    display = WatchDisplay(Console(file=stream, width=200), config, lambda: times[0])
    for now_s in range(100):
        times[0] = float(now_s)
        display.show(NOTHING, BUSY)
    assert stream.getvalue().splitlines() == [" progress step 100: sums 1/3"] * 3


def test_a_terminal_has_a_bar_with_the_time_left_for_each_benchmark_that_runs(tmp_path: Path) -> None:
    times = [0.0]
    display = display_of(tmp_path, monotonic_s=lambda: times[0])
    for done in range(0, 60, 10):
        times[0] = float(done)
        counts = tuple(BenchmarkCount(benchmark=n, done=done, total=t) for n, t in (("facts", 100), ("sums", 50)))
        progress = Progress(stage=Stage.EVALUATING, benchmarks=("facts", "sums"), done=done, total=150, counts=counts)
        display.show(NOTHING, replace(BUSY, running=(replace(BUSY.running[0], progress=progress),)))
        if done == 40:
            both = bars_of(display)
    assert [line.split()[2:3] + line.split()[-2:] for line in both] == [
        ["facts", "40/100", "01:00"],
        ["sums", "40/50", "00:10"],
    ]
    (left,) = bars_of(display)  # the other one has no sample left
    assert left.split()[-2:] == ["50/100", "00:50"]
    assert len(left) <= 80
    display.show(NOTHING, QueueState())
    assert bars_of(display) == []


def test_lines_name_a_run_that_is_not_the_configured_one_and_a_new_branch(tmp_path: Path) -> None:
    stream = io.StringIO()
    config = parse_config(FORGETTING_TOML, tmp_path / "tracker.toml")
    own = replace(RECORD.plan.checkpoint, run_id=config.run.name)
    other = replace(own, run_id=f"{own.run_id}/seed-2")
    display = WatchDisplay(Console(file=stream, width=200), config, float)
    display.show(replace(NOTHING, checkpoints=(own, other), branches=(other,)), QueueState())
    lines = [line.split("  ")[-2].strip() for line in stream.getvalue().splitlines()[:2]]
    assert lines == [f"found step {own.step}", f"found {other.run_id} step {own.step}"]
    assert f"training began again before {other.run_id} step {own.step}: a new branch" in stream.getvalue()


def test_the_live_line_says_why_plans_wait_and_names_other_runs(tmp_path: Path) -> None:
    display = display_of(tmp_path)
    assert str(display._status(NOTHING, PAUSED)) == f"pending steps: r step 300, r step 200; {WHY}"
    own = replace(LOOKING.waiting[0], run_id=display._config.run.name)
    assert str(display._status(NOTHING, replace(LOOKING, waiting=(own,)))) == "pending steps: 200"


def test_the_live_line_says_what_is_still_on_its_way_to_mlflow_and_to_people(tmp_path: Path) -> None:
    passed = replace(NOTHING, unsent=3, pending_alerts=1)
    text = "pending steps: r step 200 | 3 results pending for MLflow | 1 alert pending"
    assert str(display_of(tmp_path)._status(passed, LOOKING)) == text


def test_a_verdict_is_provisional_while_an_earlier_step_is_open_and_its_change_is_a_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    display = display_of(tmp_path, stream)
    run = forgetting_run(checkpoints=3, samples=2, trouble=False)
    name, step = run.run_id, run.reports[2].step
    early, late, other = (
        Waiting(plan_id=key, run_id=of, step=at)
        for key, of, at in (("a", name, step - 100), ("b", name, step + 100), ("c", "other", 1))
    )
    texts = {"subject": "sums", "before": "suspect", "after": "equivalent", "reason": "step 100 was evaluated"}
    change = run_event(EventKind.CHANGED, (name, step, run.reports[2].created_at), **texts)
    judged = replace(NOTHING, reports=(run.reports[2],))
    display.show(judged, QueueState(waiting=(late, other), counts={"waiting": 2}))
    assert "provisional" not in stream.getvalue()
    display.show(judged, QueueState(waiting=(late, early), counts={"waiting": 2}))
    assert f"provisional: results of step {step - 100} are pending" in stream.getvalue()
    display.show(replace(NOTHING, changes=(change,)), QueueState())
    assert f"changed step {step}  sums: suspect → equivalent (step 100 was evaluated)" in stream.getvalue()


def test_skipped_checkpoints_are_listed_by_run(tmp_path: Path) -> None:
    stream = io.StringIO()
    own = Gap(run_id="r", step=1, source_uri="/r", seen_at=RECORD.started_at, code="E", message="m", hint="h")
    gaps = (own, replace(own, step=3), replace(own, run_id="seed-2"))
    display_of(tmp_path, stream).show(replace(NOTHING, skipped=gaps), QueueState())
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert [line.split(":")[0] for line in lines] == [
        "skipped r 2 checkpoints, steps 1 to 3",
        "skipped seed-2 step 1",
    ]


def test_a_checkpoint_is_printed_once_although_its_source_is_opened_again_and_one_that_was_rewritten_anew(
    tmp_path: Path,
) -> None:
    stream = io.StringIO()
    display = display_of(tmp_path, stream)
    own = RECORD.plan.checkpoint
    found = replace(NOTHING, checkpoints=(own,), branches=(own,))
    for _ in range(3):
        display.show(found, QueueState())
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["found", "restart"]
    display.show(replace(found, checkpoints=(replace(own, digest="another"),), branches=()), QueueState())
    assert stream.getvalue().count("found") == 2


def test_the_time_left_comes_from_evaluations_of_the_same_suite(tmp_path: Path) -> None:
    display, run = display_of(tmp_path), forgetting_run(checkpoints=3, samples=2, trouble=False)
    each = timedelta(minutes=10)
    records = [replace(one, finished_at=one.started_at + each) for one in run.records]
    other = replace(RECORD.plan.suite, generation=Generation(max_tokens=7))
    half = replace(BUSY.running[0], progress=replace(SUMS, done=2, total=4))
    state = replace(BUSY, running=(half,), waiting=LOOKING.waiting, counts={"waiting": 4})
    sweep = replace(LOOKING.waiting[0], is_sweep=True)
    cases: dict[str, tuple[Suite, QueueState]] = {
        "about 45.0 min left": (RECORD.plan.suite, state),
        "about 20.0 min left": (RECORD.plan.suite, replace(state, running=(half, half), counts={"waiting": 3})),
        "sums 2/4 | pending steps: r step 200 and 3 more": (other, state),
        "pending steps: r step 200 and 3 more": (RECORD.plan.suite, replace(state, running=())),
        "r step 200": (RECORD.plan.suite, replace(state, waiting=(sweep,), counts={"waiting": 1})),
    }
    for end, (suite, pending) in cases.items():
        display.evaluation_s = time_left_s(records, suites=[suite], checkpoints=1, workers=1)
        assert display._status(NOTHING, pending).endswith(end)
