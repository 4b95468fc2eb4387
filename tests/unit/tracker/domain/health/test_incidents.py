"""What belongs together in a log: one incident for one cause, with its consequences, until training makes progress."""

from collections.abc import Iterable

import pytest

from tests.requires import shared_data
from tracker.config.health import load_line_rules
from tracker.domain.health.incidents import LogReader, read_log
from tracker.domain.health.report import log_report

RULES = load_line_rules()


def steps(*numbers: int) -> list[str]:
    return [f"step {number} | loss: {3 - number / 100}" for number in numbers]


def read(*lines: str | Iterable[str]) -> LogReader:
    flat: list[str] = []
    for one in lines:
        flat += [one] if isinstance(one, str) else one
    return read_log(flat, RULES)


def found(log: LogReader) -> list[tuple[str, int, int | None, bool]]:
    return [(one.rule.name, one.cause.number, one.cause.step, one.is_over) for one in log.incidents]


def test_what_follows_from_a_cause_belongs_to_it_whoever_printed_first() -> None:
    log = read(
        steps(1, 2),
        "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        *(f"Killing subprocess {pid}" for pid in range(255)),
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    )
    assert found(log) == [("oom", 4, 2, False)]
    (one,) = log.incidents
    assert [placed.hit.rule.name for placed in one.evidence] == ["oom", "nccl_timeout", "worker_died"]
    assert (one.ranks, len(one.hits), one.is_alert) == ((0, 1), 258, True)


def test_the_will_of_somebody_is_no_alert() -> None:
    log = read(steps(1), "Killing subprocess 7", "Main process received SIGINT, exiting")
    assert found(log) == [("cancelled", 3, 1, False)]
    assert not log.incidents[0].is_alert


def test_an_incident_is_over_when_steps_go_on() -> None:
    error = "requests.exceptions.ConnectionError: Max retries exceeded with url: /api"
    log = read(steps(1, 2), error, steps(2, 3, 4), error, steps(5, 6, 7, 8), "ValueError: no")
    assert found(log) == [("network", 3, 2, True), ("python_error", 12, 8, False)]
    assert len(log.incidents[0].hits) == 2


def test_a_loss_that_is_no_number_is_one_incident_from_its_first_step_on() -> None:
    log = read(steps(1, 2), *(f"step {n} | loss: nan" for n in range(3, 60)))
    assert found(log) == [("nan", 3, 3, False)]
    assert len(log.incidents[0].hits) == 57
    back = read(steps(1), "step 2 | loss: nan", steps(3, 4, 5, 6))
    assert found(back) == [("nan", 2, 2, True)]


def test_steps_and_losses_are_those_of_the_training() -> None:
    log = read("step 10: train loss 2.5, val loss 9.5", "step 20 | val_loss 8.5", "step 30 | loss 1.5")
    said = log.steps
    assert (said.lines, said.first, said.last, said.first_loss, said.last_loss) == (3, 10, 30, 2.5, 1.5)


def test_a_report_is_on_one_line_each_and_bounded() -> None:
    report = log_report("train.log", read("\x1b[31mValueError: a\tb" + "x" * 5000 + "\x1b[0m"))
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
        log = read_log(lines, RULES)
    assert [(one.rule.name, one.cause.number) for one in log.incidents] == [TROUBLE[name]]


def test_healthy_real_logs_have_no_incident() -> None:
    healthy = ("custom_qwen", "llm.c", "llamafactory", "ms_swift", "nemo_automodel", "parameter_golf", "torchtitan")
    read_files = 0
    for folder in healthy:
        for path in sorted(shared_data(f"train_logs/{folder}").iterdir()):
            if path.name != "SOURCE.md":
                read_files += 1
                with path.open(encoding="utf-8", errors="replace") as lines:
                    assert read_log(lines, RULES).incidents == (), path.name
    assert read_files > 30
