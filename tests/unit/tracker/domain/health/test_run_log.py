"""What belongs together in a log: one incident for one cause, with its consequences, until training makes progress."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.log_reading import read_log
from tests.requires import shared_data
from tracker.adapters.health.documents import STATE, STREAM
from tracker.config.health import load_rules
from tracker.domain.health.failures import failures_of
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.signs import ProcessSign, process_trouble
from tracker.domain.health.report import log_report
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.series.conditions import MetricCondition
from tracker.domain.records.training import CONTEXT_LINES

RULES = load_rules().lines


def steps(*numbers: int) -> list[str]:
    return [f"step {number} | loss: {3 - number / 100}" for number in numbers]


def read(*lines: str | Iterable[str]) -> RunLog:
    flat: list[str] = []
    for one in lines:
        flat += [one] if isinstance(one, str) else one
    return read_log(flat, RunLog(rules=RULES, state=RunState()))


def found(log: RunLog) -> list[tuple[str, int, int | None, bool]]:
    return [(one.name, one.cause.number, one.cause.step, one.is_over) for one in log.incidents()]


def test_what_follows_from_a_cause_belongs_to_it_whoever_printed_first() -> None:
    log = read(
        steps(1, 2),
        "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        *(f"Killing subprocess {pid}" for pid in range(255)),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    )
    assert found(log) == [("oom", 4, 2, False)]
    (one,) = log.incidents()
    assert [line.trouble.name for line in one.evidence] == ["oom", "nccl_timeout", "worker_died"]
    assert (one.ranks, one.lines, one.is_alert) == ((0,), 258, True)


FRAME = '  File "train.py", line 3, in main'
TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("lines", "rank"),
    [
        ((TRACEBACK, FRAME, "    main()", "my.module.Boom: something"), None),
        ((TRACEBACK, FRAME, "Empty"), None),
        ((TRACEBACK, *([FRAME, "    main()"] * CONTEXT_LINES), "Boom"), None),
        ((f"[rank1]: {TRACEBACK}", f"[rank1]: {FRAME}", f"[rank0]: {TRACEBACK}", "[rank1]: my.Boom: x"), 1),
        ((f"(Worker pid=7) {TRACEBACK}", f"(Worker pid=7) {FRAME}", "(Worker pid=7) my.Boom: x"), None),
    ],
)
def test_the_line_that_ends_a_traceback_is_an_error_of_any_name(lines: tuple[str, ...], rank: int | None) -> None:
    log = read(lines)
    assert found(log) == [("python_error", len(lines), None, False)]
    assert log.incidents()[0].ranks == (() if rank is None else (rank,))


@pytest.mark.parametrize(
    "lines",
    [
        ("my.module.Boom: something",),
        (TRACEBACK, "my.module.Boom: something"),
        ("Stack (most recent call last):", FRAME, "Loss: 2.5"),
        (f"[rank1]: {TRACEBACK}", f"[rank1]: {FRAME}", "[rank0]: Loss: 2.5"),
        (TRACEBACK, FRAME, "the loss is 2.5"),
    ],
)
def test_names_of_no_error_are_none_without_a_traceback(lines: tuple[str, ...]) -> None:
    assert found(read(lines)) == []


def test_a_stop_by_a_user_is_no_alert() -> None:
    log = read(steps(1), "Killing subprocess 7", "Main process received SIGINT, exiting")
    assert found(log) == [("cancelled", 3, 1, False)]
    assert not log.incidents()[0].is_alert


OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory."
STEP_CANCELLED = "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"


def test_who_cancels_a_job_that_failed_is_not_its_cause() -> None:
    failed = read(steps(1), OOM, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", STEP_CANCELLED)
    assert found(failed) == [("oom", 2, 1, False)]
    assert found(read(steps(1), STEP_CANCELLED, "ValueError: interrupted")) == [("cancelled", 2, 1, False)]
    assert found(read("eval: the user asked about KeyboardInterrupt")) == []


RANK_KILLED = "E0601 12:00:00.000 77 torch/elastic/api.py:882] failed (exitcode: -9) local_rank: 1 (pid: 79)"
NETWORK = "requests.exceptions.ConnectionError: Max retries exceeded with url: /api"
TIMED_OUT = "[rank5]:[E1 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout: WorkNCCL"


def test_what_training_survives_and_later_signals_explain_no_failure() -> None:
    assert found(read(steps(1), NETWORK, TIMED_OUT)) == [("nccl_timeout", 3, 1, False)]
    killed = read(
        steps(1), RANK_KILLED, "W0601 12:00 torch/elastic/api.py:723] Received 15 death signal, shutting down"
    )
    assert found(killed) == [("rank_killed", 2, 1, False)]
    log = read(steps(1), NETWORK)
    log.trouble.take_sign(
        ProcessSign(trouble=process_trouble("gone", "look"), text="all ended"), datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert [(one.name, one.is_alert) for one in log.incidents()] == [("gone", True)]


def test_what_ranks_print_after_the_last_step_of_a_training_is_no_incident() -> None:
    lost = "RuntimeError: Connection closed by peer. This is caused by a remote worker crashing"
    assert found(read("step 9/10 | loss: 2.5", lost)) != []
    assert found(read("step 10/10 | loss: 2.5", lost)) == []


def test_a_loss_that_is_no_number_counts_where_the_log_is_no_text() -> None:
    log, stream = RunLog(rules=RULES, state=RunState()), Stream(name="events.out.tfevents.1")
    for step, loss in ((1, 2.5), (2, float("nan")), (3, float("nan"))):
        log.take_row(StepRow(step=step, values={"train/loss": loss}), stream, StreamState())
    assert found(log) == [("nan", 0, 2, False)]


def test_logs_of_jobs_that_follow_each_other_are_branches_also_in_history_and_those_of_ranks_are_not() -> None:
    def branches(*logs: tuple[str, int | None, list[str]], crash: bool = False, is_history: bool = True) -> int:
        log, at = RunLog(rules=RULES, state=RunState()), datetime(2026, 1, 1, tzinfo=UTC)
        for name, rank, lines in logs:
            state = StreamState(after=log.state.episodes)
            for number, text in enumerate((*lines, OOM) if crash else lines, start=1):
                at += timedelta(seconds=1)
                stream = Stream(name=name, rank=rank, read_at=at, is_history=is_history)
                log.take(RawLine(number=number, text=text), stream, state)
        return log.state.starts.branch

    first, second = steps(100, 200, 300), steps(100, 200)
    assert branches(("slurm-204.out", None, first), ("slurm-205.out", None, second)) == 1
    assert branches(("slurm-204.out", None, first), ("slurm-204.err", None, second)) == 0
    assert branches(("slurm-204.out", None, second), ("slurm-205.out", None, steps(300))) == 0
    assert branches(("job_204_0.log", 0, first), ("job_205_1.log", 1, second)) == 0
    assert branches(("a.log", None, first), ("b.log", None, second), ("b.csv", None, second), is_history=False) == 0
    crashed = (("a.log", None, first), ("b.log", None, second), ("b.jsonl", None, second))
    assert branches(*crashed[:2], crash=True, is_history=False) == 1


def test_a_hang_has_the_lines_of_the_rank_that_causes_it_and_the_last_one_of_each() -> None:
    log = RunLog(rules=RULES, state=RunState())
    for rank, lines in ((7, ["step 1 | loss: 2.5", "opening shard 12"]), (0, ["step 1 | loss: 2.5"])):
        for number, text in enumerate(lines, start=1):
            log.take(RawLine(number=number, text=text), Stream(name=f"rank_{rank}.log", rank=rank), StreamState())
    hang = ProcessSign(
        trouble=process_trouble("hang", "look"), text="it hangs", ranks=(7,), capture="rank 7 sleeps", is_proven=False
    )
    log.trouble.take_sign(hang, datetime(2026, 1, 1, tzinfo=UTC))
    (found,) = log.incidents()
    assert found.context[-1] == "opening shard 12"
    assert not found.cause.is_proven
    assert found.capture == "rank 7 sleeps\n\nlast lines:\nrank 0: step 1 | loss: 2.5\nrank 7: opening shard 12"


def test_only_a_log_that_was_written_recently_ends_with_trouble_of_now() -> None:
    for recent, is_history in ((["old.log"], False), (["new.log"], True)):
        log = RunLog(rules=RULES, state=RunState())
        for name, lines in (("old.log", [*steps(1), OOM]), ("new.log", ["hello"])):
            for number, text in enumerate(lines, start=1):
                log.take(RawLine(number=number, text=text), Stream(name=name, is_history=True), StreamState())
        assert log.incidents()[0].is_history
        log.end_history(recent)
        assert log.incidents()[0].is_history is is_history


def test_logs_of_ranks_that_lag_behind_are_no_progress() -> None:
    ranks = [line for step in (28, 29, 30) for line in (f"[rank1]: step {step} | loss: 2.5",)]
    log = read(steps(*range(20, 31)), OOM, ranks, [f"[rank5]: step {step} | loss: 2.5" for step in range(27, 31)])
    assert found(log) == [("oom", 12, 30, False)]
    assert (log.steps.last, log.state.starts.branch) == (30, 0)
    same = [f"[rank{rank}]: step {step} | loss: 2.5" for step in (31, 32, 33) for rank in range(8)]
    assert found(read(steps(*range(20, 31)), OOM, same[:16])) == [("oom", 12, 30, False)]
    assert found(read(steps(*range(20, 31)), OOM, same)) == [("oom", 12, 30, True)]


def test_training_that_goes_back_makes_progress_again_and_what_it_lost_is_known() -> None:
    log = read(steps(*range(100, 201, 10)), OOM, steps(160, 170, 180))
    assert found(log) == [("oom", 12, 200, True)]
    (one,) = log.incidents()
    assert (one.resumed_step, one.ended_step) == (160, 180)
    assert failures_of([one], [150]).lost_steps == 41
    (killed,) = read(steps(200), SIGTERM, "[rank0]: failed (exitcode: -9) local_rank: 1 (pid: 3)").incidents()
    assert (killed.name, killed.is_alert, failures_of([killed], []).failures) == ("cancelled", False, 0)
    (continued,) = read(steps(10), OOM, steps(11, 12, 13)).incidents()
    assert failures_of([continued], []).failures == 0
    (lasting,) = read(steps(10, 20), OOM).incidents()
    assert [failures_of([lasting], saved).lost_steps for saved in ([], [5], [20, 30])] == [20, 15, 0]


INTERRUPTED = "KeyboardInterrupt"
SIGTERM = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15"
ERROR = "RuntimeError: shape mismatch"


@pytest.mark.parametrize(
    ("name", "pause_s", "lines", "expected"),
    [
        ("1.out", 1, [*steps(1), ERROR], ["cancelled", "python_error"]),
        ("2.out", 1, [*steps(1), ERROR], ["cancelled", "python_error"]),
        ("2.out", 60, [ERROR], ["cancelled", "python_error"]),
        ("2.err", 1, [ERROR], ["cancelled"]),
        ("2.err", 60, ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"], ["cancelled"]),
        ("1.out", 60, [ERROR], ["cancelled"]),
    ],
    ids=["same log", "another log", "before its first step", "traceback", "consequence", "no restart"],
)
@pytest.mark.parametrize("stop", [INTERRUPTED, SIGTERM])
def test_what_fails_after_the_restart_of_a_stopped_training_is_another_incident(
    stop: str, name: str, pause_s: int, lines: list[str], expected: list[str]
) -> None:
    log, at = RunLog(rules=RULES, state=RunState()), datetime(2026, 1, 1, tzinfo=UTC)
    states = {"1.out": StreamState()}
    for stream, texts in (("1.out", [*steps(1, 2, 3), stop]), (name, lines)):
        state = states.setdefault(stream, StreamState(after=log.state.episodes))
        for number, text in enumerate(texts, start=1):
            log.take(RawLine(number=number, text=text), Stream(name=stream, read_at=at), state)
        at += timedelta(seconds=pause_s)
    incidents = log.incidents()
    assert [one.name for one in incidents] == expected
    assert incidents[-1].is_alert == (expected[-1] == "python_error")
    assert [one.is_over for one in incidents] == [True, False][-len(expected) :]


def test_a_restart_in_another_log_begins_a_branch_after_a_pause_only() -> None:
    for pause_s, branch in ((60, 1), (1, 0)):
        log, at = RunLog(rules=RULES, state=RunState()), datetime(2026, 1, 1, tzinfo=UTC)
        for name, lines in (("1.out", steps(*range(100, 201, 10))), ("2.out", steps(160, 170, 180))):
            state = StreamState()
            for number, text in enumerate(lines, start=1):
                at += timedelta(seconds=1)
                log.take(RawLine(number=number, text=text), Stream(name=name, read_at=at), state)
            at += timedelta(seconds=pause_s - 1)
        assert log.state.starts.branch == branch
        assert len([point for point in log.points if point.step == 160]) == 1 + branch


def test_findings_end_where_training_goes_back_and_the_first_end_is_not_dropped_for_later_ones() -> None:
    stored: dict[str, bool] = {}
    calm = [f"step {step} | loss: {3 - step / 300 + step % 7 / 100}" for step in range(100)]
    log, state = RunLog(rules=RULES, state=RunState(), conditions=(MetricCondition.parse("kl > 3"),)), StreamState()
    flips = [
        f"step {step} | loss: {3 - step / 300 + step % 7 / 100} | kl: {2 + 2 * (step % 4 == 1)}"
        for step in range(201, 701)
    ]
    for lines in (calm, [f"step {step} | loss: 40.0" for step in range(100, 130)], calm[60:], flips[:1], flips[1:]):
        for number, text in enumerate(lines, start=1):
            log.take(RawLine(number=number, text=text), Stream(name="a"), state)
        stored |= {one.id: one.is_over for one in log.series_incidents(Stream(name="a"))}
        log.forget_taken()
    assert len(stored) > 100
    assert [key for key, is_over in stored.items() if not is_over] == []


def test_what_a_stream_remembers_stays_bounded_after_a_restart() -> None:
    state, run = StreamState(), RunState()
    for _ in range(2):
        for number in range(100):
            state.recent.append(str(number))
            run.pace.take_step(float(number))
        _, state = STREAM.from_json(STREAM.to_json((Cursor(inode=1), state)))
        run = STATE.from_json(STATE.to_json(run))
    state.recent.append("last")
    assert len(state.recent) == CONTEXT_LINES
    assert STATE.to_json(run).count(",") < 200


def test_steps_in_another_log_are_progress_once_those_from_before_the_failure_have_arrived() -> None:
    log, started_at = RunLog(rules=RULES, state=RunState()), datetime(2026, 1, 1, tzinfo=UTC)
    out, err = StreamState(), StreamState()
    for after_s, is_history, name, lines, is_over in (
        (0, True, "a.err", [OOM], False),
        (0, True, "a.out", steps(*range(10)), False),
        (1, False, "a.out", steps(*range(10, 15)), False),
        (10, False, "a.out", steps(15, 16), False),
        (11, False, "a.out", steps(17), True),
    ):
        at = started_at + timedelta(seconds=after_s)
        stream = Stream(name=name, read_at=at, is_history=is_history)
        for number, text in enumerate(lines, start=1):
            log.take(RawLine(number=number, text=text), stream, err if name == "a.err" else out)
        assert [one.is_over for one in log.incidents()] == [is_over]
    assert log.incidents()[0].resumed_step == 15


def test_times_of_reading_say_nothing_about_failures_in_logs_of_the_past() -> None:
    (one,) = read(steps(10), OOM).incidents()
    later = replace(one, id="b", seen_at=one.seen_at + timedelta(hours=2))
    assert failures_of([one, later], []).hours_between == 2.0
    assert failures_of([replace(one, is_history=True), later], []).hours_between is None


def test_an_evaluation_without_a_number_is_no_trouble() -> None:
    assert found(read(steps(1), "{'eval_loss': nan, 'epoch': 0.5}", "step 2 | val_loss: nan")) == []


def test_an_incident_is_over_when_steps_go_on() -> None:
    error = "requests.exceptions.ConnectionError: Max retries exceeded with url: /api"
    log = read(steps(1, 2), error, steps(2, 3, 4), error, steps(5, 6, 7, 8), "ValueError: no")
    assert found(log) == [("network", 3, 2, True), ("python_error", 12, 8, False)]
    assert log.incidents()[0].lines == 2


def test_a_loss_that_is_no_number_is_one_incident_from_its_first_step_on() -> None:
    log = read(steps(1, 2), *(f"step {n} | loss: nan" for n in range(3, 60)))
    assert found(log) == [("nan", 3, 3, False)]
    assert log.incidents()[0].lines == 57
    back = read(steps(1), "step 2 | loss: nan", steps(3, 4, 5, 6))
    assert found(back) == [("nan", 2, 2, True)]


def test_steps_and_losses_are_those_of_the_training() -> None:
    log = read("step 10: train loss 2.5, val loss 9.5", "step 20 | val_loss 8.5", "step 30 | loss 1.5")
    said = log.steps
    assert (said.lines, said.first, said.last, said.first_loss, said.last_loss) == (3, 10, 30, 2.5, 1.5)


def test_a_report_is_on_one_line_each_and_bounded() -> None:
    report = log_report("train.log", lines=1, log=read("\x1b[31mValueError: a\tb" + "x" * 5000 + "\x1b[0m"))
    (line,) = report.incidents[0].evidence
    assert line.text.startswith("ValueError: a b")
    assert len(line.text) < 400
    assert (report.lines, report.steps.lines) == (1, 0)


TROUBLE = {
    "megatron/meg_gpt2_base_n64_TIMELIMIT.out": ("time_limit", 2398),
    "megatron/meg_gpt2_base_n4.out": ("cancelled", 1577),
    "nanochat/sft_run_NAN.log": ("nan", 116),
    "nemo_crash/redhat_llama2_SIGSEGV.log": ("segfault", 372),
    "hf_trainer/lcn-llama_OOM_train.err": ("oom", 84),
    "dmesg/gpud_xid119.log": ("xid_hardware", 3),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_named_trouble_of_a_real_log_is_one_incident(name: str) -> None:
    folder, _, file = name.partition("/")
    path = shared_data(f"train_logs/{folder}") / file
    with path.open(encoding="utf-8", errors="replace") as lines:
        log = read_log(lines, RunLog(rules=RULES, state=RunState()))
    assert [(one.name, one.cause.number) for one in log.incidents()] == [TROUBLE[name]]


def test_healthy_real_logs_have_no_incident() -> None:
    healthy = ("custom_qwen", "llm.c", "llamafactory", "ms_swift", "nemo_automodel", "parameter_golf", "torchtitan")
    read_files = 0
    for folder in healthy:
        for path in sorted(shared_data(f"train_logs/{folder}").iterdir()):
            if path.name != "SOURCE.md":
                read_files += 1
                with path.open(encoding="utf-8", errors="replace") as lines:
                    assert read_log(lines, RunLog(rules=RULES, state=RunState())).incidents() == (), path.name
    assert read_files > 30
