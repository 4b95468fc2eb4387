"""Steps and numbers in lines of many trainers: named as printed, with NaN, units and prefixes of launchers."""

import math
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.requires import shared_data
from tracker.domain.health.logs.step_lines import step_row

LINES: Mapping[str, tuple[int | None, Mapping[str, float]]] = {
    "step  120 | loss 2.5 | lr 1.5e-04 | grad 0.5 | 113.4k tok/s | mfu 41%": (
        120,
        {"loss": 2.5, "lr": 1.5e-4, "grad": 0.5, "mfu": 41},
    ),
    "[default7]: iteration  30/ 900 | consumed samples:  120 | learning rate: 1.5E-04 | lm loss: 7.5E+00 |": (
        30,
        {"consumed samples": 120, "learning rate": 1.5e-4, "lm loss": 7.5},
    ),
    "iter 530: loss 2.25 BPC, time 58.50ms, mfu 3.25%": (530, {"loss": 2.25, "time": 58.5, "mfu": 3.25}),
    "[Step 10/100] loss: 2.5 lr: 1e-3": (10, {"loss": 2.5, "lr": 1e-3}),
    "Step [100/600], Loss: 2.5": (100, {"loss": 2.5}),
    "mmengine - INFO - Iter(train) [   50/1000]  lr: 1.0e-03  time: 0.5  loss: 1.5": (
        50,
        {"lr": 1e-3, "time": 0.5, "loss": 1.5},
    ),
    "step 500: train loss 1.25, val loss 1.5": (500, {"train loss": 1.25, "val loss": 1.5}),
    "s:2 trl:10.5 lr:0.0001 norm:1.5": (2, {"trl": 10.5, "lr": 1e-4, "norm": 1.5}),
    "step:1/6200 train_loss:6.5 train_time:24ms step_avg:nanms": (
        1,
        {"train_loss": 6.5, "train_time": 24, "step_avg": math.nan},
    ),
    "500/20000 train_loss: 2.5 train_time: 0.9m tok/s: 6833364": (
        500,
        {"train_loss": 2.5, "train_time": 0.9e6, "tok/s": 6833364},
    ),
    "INFO:root:step 4 | epoch 0 | loss 1.5 | mem: 11.5 GiB": (4, {"epoch": 0, "loss": 1.5, "mem": 11.5}),
    "[2026-05-12 08:04:23][I][metrics] step:  7  loss: 12.5  memory: 1.5GiB": (7, {"loss": 12.5, "memory": 1.5}),
    "step 9 (0.10%) | loss: nan | dt: 5.5ms": (9, {"loss": math.nan, "dt": 5.5}),
    "step 9 | loss: -inf": (9, {"loss": -math.inf}),
    '{"current_steps": 3, "total_steps": 9, "loss": 0.5, "elapsed_time": "0:01:03"}': (
        3,
        {"total_steps": 9, "loss": 0.5},
    ),
    '{"loss": 20.5, "global_step/max_steps": "1/438", "memory(GiB)": 15.5}': (1, {"loss": 20.5, "memory(gib)": 15.5}),
    "{'loss': 3.5, 'grad_norm': nan, 'learning_rate': 7.5e-06, 'epoch': 0.5}": (
        None,
        {"loss": 3.5, "grad_norm": math.nan, "learning_rate": 7.5e-6, "epoch": 0.5},
    ),
}
NO_STEPS = (
    "",
    "Loading checkpoint shards: 100%|##########| 4/4",
    "stepping down from the podium",
    "step by step instructions",
    "Epoch [1/5], Step [100/600], Loss: 2.5",
    "version 1.2 | build 3.4",
    "step 7",
    "the third step 12.5 times",
    "RuntimeError: shape mismatch",
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_names_its_step_and_its_numbers(line: str) -> None:
    step, values = LINES[line]
    row = step_row(line)
    assert row is not None
    assert row.step == step
    assert row.values == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("line", NO_STEPS)
def test_other_lines_are_none(line: str) -> None:
    assert step_row(line) is None


@given(st.text(max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    step_row(text)
    step_row(f"step 5 | loss: {text}")


REAL = {
    "custom_qwen/train.out": r"^step +(?P<step>\d+) \| loss (?P<loss>[\d.]+)",
    "llm.c/main.log": r"^s:(?P<step>\d+) trl:(?P<loss>[\d.]+)",
    "megatron/meg_gpt2_base_n4.out": r"^ iteration +(?P<step>\d+)/.*lm loss: (?P<loss>[\d.E+-]+)",
    "nanochat/sft_run_NAN.log": r"^step (?P<step>\d+) .*loss: (?P<loss>[\w.]+)",
    "nanogpt/run-20240214_191836-mw8ngzqq.log": r"^iter (?P<step>\d+): loss (?P<loss>[\d.]+)",
    "nemo_automodel/finetune.mdx.lines.txt": r"step +(?P<step>\d+) \| epoch \d+ \| loss (?P<loss>[\d.]+)",
    "torchtitan/ezpz_torchtitan_lines.txt": r"step: +(?P<step>\d+) +loss: (?P<loss>[\d.]+)",
    "parameter_golf/2026-03-17_NaiveBaseline__train.log": r"^step:(?P<step>\d+)/\d+ train_loss:(?P<loss>[\d.]+)",
    "llamafactory/360_grpo_trainer_log.jsonl": r'"current_steps": (?P<step>\d+), .*?"loss": (?P<loss>[\d.]+)',
    "ms_swift/DeepClima_logging.jsonl": r'^\{"loss": (?P<loss>[\d.]+).*"global_step/max_steps": "(?P<step>\d+)/',
}


@pytest.mark.parametrize("name", REAL)
def test_every_loss_of_a_real_log_is_found_at_its_step(name: str) -> None:
    folder, _, file = name.partition("/")
    lines = (shared_data(f"train_logs/{folder}") / file).read_text(encoding="utf-8", errors="replace").splitlines()
    wanted = [(line, found) for line in lines if (found := re.search(REAL[name], line)) is not None]
    assert len(wanted) >= 3
    for line, found in wanted:
        row = step_row(line)
        assert row is not None, line
        assert row.step == int(found["step"])
        losses = [value for key, value in row.values.items() if "loss" in key or key == "trl"]
        assert float(found["loss"]) in losses or math.isnan(float(found["loss"]))
