"""How long a training may be quiet: limits learn from the run, and recurring pauses are looked at twice and no more."""

import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from tests.requires import shared_data
from tracker.domain.health.logs.log_times import LogTimes
from tracker.domain.health.processes.pace import HangLimits, JobPace, JobPhase, phase_of_line, replay
from tracker.domain.health.processes.seen import ProcessId

LIMITS = HangLimits()
RANK, OTHER = ProcessId(pid=7, created_s=1.0), ProcessId(pid=8, created_s=1.0)


def steps(*intervals_s: float) -> list[float]:
    times = [0.0]
    for interval_s in intervals_s:
        times.append(times[-1] + interval_s)
    return times


def times_in(lines: list[str]) -> list[float]:
    times = LogTimes()
    for line in lines:
        times.take(line)
    return times.seconds


def trained(*intervals_s: float) -> JobPace:
    pace = JobPace()
    pace.watch([RANK], 0.0)
    for at_s in steps(*intervals_s):
        pace.take_step(at_s)
    return pace


def test_a_run_that_pauses_at_every_20th_step_is_looked_at_twice_and_never_reported() -> None:
    """As a public DeepSpeed run: 8.2 s a step, and 154 to 184 s at every 20th."""
    pauses = [154.0, 184.0, 160.0, 171.0, 158.0, 180.0]
    found = replay(steps(*(s for pause in pauses * 5 for s in (*[8.2] * 19, pause))), LIMITS)
    assert found is not None
    assert (found.looks, found.reports) == (2, 0)
    assert found.usual_s == pytest.approx(8.2)
    assert found.longest_pause_s == pytest.approx(184.0)


def test_a_fast_run_is_looked_at_after_15_seconds_and_a_slow_one_after_three_steps() -> None:
    assert trained(*[0.3] * 30).look_limit_s(LIMITS) == 15.0
    assert trained(*[60.0] * 30).look_limit_s(LIMITS) == 180.0
    assert trained(*[0.3] * 30).report_limit_s(LIMITS) == 300.0
    assert trained(*[60.0] * 30).report_limit_s(LIMITS) == 600.0
    assert trained(*[8.0] * 30, 400.0, *[8.0] * 3).report_limit_s(LIMITS) == 600.0


def test_the_start_saves_and_evaluations_have_their_own_limits_and_lengths() -> None:
    pace = JobPace()
    pace.watch([RANK], 0.0)
    pace.take_sign(100.0)
    assert (pace.phase, pace.quiet_s(100.0), pace.report_limit_s(LIMITS)) == (JobPhase.STARTING, 0.0, 1800.0)
    for at_s in (300.0, 308.0, 316.0, 324.0):
        pace.take_step(at_s)
    assert pace.report_limit_s(LIMITS) == 450.0  # 1.5 times the time until the first step
    pace.take_sign(325.0, JobPhase.SAVING)
    assert (pace.quiet_s(330.0), pace.report_limit_s(LIMITS)) == (5.0, 900.0)
    pace.take_step(925.0)
    pace.take_sign(926.0, JobPhase.SAVING)
    assert pace.report_limit_s(LIMITS) == 1500.0
    pace.take_sign(930.0, JobPhase.EVALUATING)
    assert pace.report_limit_s(LIMITS) == 900.0
    assert pace.usual_s == 8.0  # intervals with a save or an evaluation are not usual


def test_the_time_in_which_nobody_watched_is_no_pause_of_the_run() -> None:
    pace = trained(*[8.0] * 10)
    again = TypeAdapter(JobPace).validate_python(TypeAdapter(JobPace).dump_python(pace, mode="json"))
    assert again == pace
    again.watch([RANK, OTHER], 50_000.0)
    again.take_step(50_010.0)
    again.take_step(50_018.0)
    assert (again.phase, again.report_limit_s(LIMITS)) == (JobPhase.TRAINING, 300.0)
    again.watch([replace(RANK, pid=9)], 60_000.0)
    assert (again.phase, again.usual_s) == (JobPhase.STARTING, 8.0)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("***** Running Evaluation *****", JobPhase.EVALUATING),
        ("Running validation...", JobPhase.EVALUATING),
        ("Evaluating:  10%", JobPhase.EVALUATING),
        ("Saving model checkpoint to out/checkpoint-500", JobPhase.SAVING),
        ("[torch_checkpoint_engine.py] Saving out/global_step100/mp_rank_00_model_states.pt", None),
        ("Loading the validation set", None),
        ("the value is invalid", None),
    ],
)
def test_lines_announce_saves_and_evaluations(line: str, phase: JobPhase | None) -> None:
    assert phase_of_line(line) is phase


def test_no_public_log_that_tells_its_times_is_reported_and_none_is_looked_at_more_than_once_an_hour() -> None:
    timed = 0
    for path in sorted(shared_data("train_logs").rglob("*")):
        if path.is_file() and path.name != "SOURCE.md":
            times = LogTimes()
            for line in path.read_text(errors="replace").splitlines():
                times.take(line)
            found = replay(times.seconds, LIMITS)
            timed += found is not None
            assert found is None or (found.reports, found.looks <= max(1, found.hours)) == (0, True), path.name
    assert timed >= 4


def test_times_are_read_from_what_trainers_print() -> None:
    hf = [json.dumps({"loss": 1.0, "elapsed_time": text}) for text in ("6s", "1m 42s", "1h 2m 3s", "2 days, 1:00:00")]
    assert times_in(hf) == [6.0, 102.0, 3723.0, 176400.0]
    bars = [f" 1%|#  | {step}/100 [00:{step:02}<01:00, 1it/s]" for step in (1, 1, 2, 3)]
    again = [" 1%|#  | 1/50 [00:00<00:10, 1it/s]", " 1%|#  | 2/50 [00:05<00:10, 1it/s]"]
    assert times_in([*bars, *again]) == [1.0, 2.0, 3.0, 8.0]
    megatron = [f" iteration {step}/ 9 | elapsed time per iteration (ms): 2500.0 | lm loss: 2" for step in (4, 5, 7)]
    assert times_in(megatron) == [0.0, 2.5, 7.5]
    dated = [f"[2025-02-16 18:05:{second},172] [INFO] [logging.py:96:log_dist] step=10, lr=1" for second in (10, 18)]
    first, second = times_in(dated)
    assert second - first == 8.0
    assert times_in(["nothing", "a < b", "elapsed"]) == []
