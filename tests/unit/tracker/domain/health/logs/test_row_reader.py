"""Rows of one stream: steps from progress bars, CSV, MLPerf, DeepSpeed, and formats of users; no input is an error."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.requires import shared_data
from tracker.domain.health.logs.row_reader import RowReader
from tracker.domain.health.logs.step_lines import StepRow
from tracker.domain.health.logs.user_formats import LogFormat

BLANKS = "\r" + " " * 46 + "\r"
REAL_EXCERPT = (
    "\r  0%|          | 0/24 [00:00<?, ?it/s]\r  4%|▍         | 1/24 [00:00<00:06,  3.29it/s]"
    "\r  8%|▊         | 2/24 [00:00<00:06,  3.31it/s]" + BLANKS + "{'loss': '0.8916', 'grad_norm': '1.478', "
    "'learning_rate': '4.792e-05', 'epoch': '0.25'}\n\r  8%|▊         | 2/24 [00:00<00:06,  3.31it/s]"
    "\r 12%|█▎        | 3/24 [00:00<00:06,  3.31it/s]\r 17%|█▋        | 4/24 [00:01<00:06,  3.31it/s]"
    + BLANKS
    + "{'loss': '1.193', 'epoch': '0.5'}\n\r 17%|█▋        | 4/24 [00:01<00:06,  3.31it/s]"
    "\n\r  0%|          | 0/4 [00:00<?, ?it/s]\x1b[A" + BLANKS + "\n" + BLANKS + "\x1b[A"
    "{'eval_loss': '1.151', 'eval_runtime': '0.0021', 'epoch': '0.5'}\n\r 17%|█▋  | 4/24 [00:02<00:04,  3.32it/s]"
    "\n\r100%|██████████| 4/4 [00:00<00:00, 5450.69it/s]\x1b[A\n\r" + " " * 46 + "\x1b[A"
    "\r 21%|██        | 5/24 [00:02<00:04,  3.31it/s]\r 25%|██▌       | 6/24 [00:03<00:04,  3.31it/s]"
    + BLANKS
    + "{'loss': '1.039', 'epoch': '0.75'}\n\r 25%|██▌       | 6/24 [00:03<00:04,  3.31it/s]\n"
    "{'train_runtime': '4.1', 'train_loss': '1.1', 'epoch': '3'}\n"
)
"""Of transformers 5.19 with an evaluation, whose outputs go unbuffered into one file."""


def bar(step: int, total: int, name: str = "") -> str:
    return f"{name}{100 * step // total:3d}%|###       | {step}/{total} [00:10<01:20,  1.11it/s]"


def logged(epoch: float | str, loss: float = 2.5) -> str:
    return f"{{'loss': {loss}, 'learning_rate': 1e-05, 'epoch': {epoch}}}"


def read(lines: Iterable[str], reader: RowReader | None = None) -> list[StepRow]:
    reader = reader or RowReader()
    return [row for line in lines if (row := reader.read(line)) is not None]


def steps(*lines: str) -> list[int | None]:
    return [row.step for row in read(lines)]


def test_a_dictionary_is_at_the_step_of_the_bar_before_it_and_an_evaluations_bar_counts_nothing() -> None:
    rows = read(REAL_EXCERPT.split("\n"))
    assert [(row.step, row.total, row.is_summary) for row in rows] == [
        (2, 24, False),
        (4, 24, False),
        (4, 24, False),
        (6, 24, False),
        (None, None, True),
    ]
    assert [row.values.get("loss") for row in rows] == [0.8916, 1.193, None, 1.039, None]


def test_a_bar_that_lags_behind_is_corrected_by_the_epoch() -> None:
    stream = "\r" + bar(0, 24) + BLANKS
    for step in range(2, 25, 2):
        stream += logged(step / 8) + "\n\r" + bar(step, 24) + BLANKS
    assert steps(*stream.split("\n")) == [*range(2, 25, 2)]


def test_steps_in_an_epoch_may_be_uneven() -> None:
    """Of 21 batches with two in each step, an epoch has ten steps."""
    stream = ""
    for step in range(1, 61):
        stream += "\r" + bar(step, 60) + BLANKS + logged(round((step - 1) // 10 + ((step - 1) % 10 + 1) * 2 / 21, 2))
        stream += "\n\r" + bar(step, 60)
    assert steps(*stream.split("\n")) == list(range(1, 61))


def test_rows_of_buffered_output_have_no_step() -> None:
    drawn = "".join("\r" + bar(n, 40) + BLANKS + "\r" + bar(n, 40) for n in range(1, 9))
    clump = [drawn + logged(0.25), *(logged(0.25 * n) for n in range(2, 9)), "\r" + bar(9, 40), logged(2.25)]
    assert steps(*clump) == [None] * 9
    assert steps(bar(8, 40), logged(0.5), logged(0.75), bar(9, 40), logged(1.0)) == [8, None, None]
    assert steps(*clump, bar(0, 40), bar(1, 40), logged(0.25)) == [*[None] * 9, 1]


STREAMS: dict[str, tuple[Sequence[str], list[int | None]]] = {
    "no bar": ([logged(0.1)], [None]),
    "values are strings": ([bar(3, 9), "{'loss': '5.578', 'epoch': '0.5'}"], [3]),
    "other bars have names": (
        [bar(3, 9), bar(7, 9, "Map: "), bar(8, 9, "Loading weights: "), bar(9, 9, "Fetching 9 files: "), logged(1)],
        [3],
    ),
    "named as a training": ([bar(3, 9, "Training: "), logged(0.1), bar(4, 9, "Steps: "), logged(0.2)], [3, 4]),
    "a rank before the bar": ([bar(3, 9, "[rank0]: "), logged(0.1), bar(4, 9, "0: "), logged(0.2)], [3, 4]),
    "a time before the bar": ([bar(3, 9, "2026-01-01T00:00:00.5Z "), logged(0.1)], [3]),
    "a dictionary behind the bar": ([bar(3, 9) + logged(0.1)], [3]),
    "an evaluation's bar below": ([bar(3, 9), bar(5, 7) + "\x1b[A", logged(0.1)], [3]),
    "an evaluation's bar after": ([bar(3, 9), logged(1), bar(7, 7), "{'eval_loss': 1, 'epoch': 1}"], [3, 3]),
    "an evaluation before": ([bar(7, 7), "{'eval_loss': 1.5}", bar(0, 9), bar(1, 9), logged(0.1)], [None, 1]),
    "tokenisation without a name": ([bar(500, 500), bar(0, 9), bar(1, 9), logged(0.1)], [1]),
    "a second training": ([bar(9, 9), logged(1), bar(0, 7), bar(2, 7), logged(0.5), bar(9, 9)], [9, 2]),
    "Lightning, from epoch 0": ([bar(50, 100, "Epoch 1: "), logged(1.5)], [150]),
    "epochs of how many": ([bar(50, 100, "Epoch 2/3: "), logged(1.5)], [150]),
    "a bar that counts epochs": ([bar(1, 3, "Epoch: "), logged(0.5)], [None]),
    "something else in between": (
        [bar(3, 9), logged(0.1), "{'block_size': 8}", bar(4, 9), "{'queue_depth': 8}", logged(0.2)],
        [3, None, None, 4],
    ),
    "an epoch that cannot be": ([bar(3, 9), logged("1e300"), logged("nan"), logged(-1)], [None] * 3),
    "a dictionary of something else": ([bar(3, 9), "{'block_size': 1048576, 'queue_depth': 8}"], [None]),
    "its own step wins": ([bar(3, 9), '{"step": 7, "loss": 1.5}'], [7]),
    "bars alone": ([bar(1, 9), "\r" + bar(2, 9), bar(1, 2, "Epoch 1: ")], []),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_trainings_bar_gives_the_step(name: str) -> None:
    lines, wanted = STREAMS[name]
    assert steps(*lines) == wanted


LINES: dict[str, StepRow | None] = {
    ':::MLLOG {"key": "train_loss", "value": 4.5, "metadata": {"lineno": 7, "step_num": 10}}': StepRow(
        step=10, values={"train_loss": 4.5}
    ),
    '0: :::MLLOG {"key": "train_loss", "value": NaN, "metadata": {"step": 8, "samples_count": 64}}': StepRow(
        step=8, values={"train_loss": math.nan}
    ),
    ':::MLLOG {"key": "train_loss", "value": 4.5, "metadata": {"samples_count": 64}}': StepRow(
        step=64, values={"train_loss": 4.5}
    ),
    ':::MLLOG {"key": "tracked_stats", "value": {"throughput": 2.5}, "metadata": {"step": 8}}': None,
    ':::MLLOG {"key": "seed", "value": 8941, "metadata": {"lineno": 59}}': None,
    "[2025-02-16 16:20:08,701] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05, 2e-05], "
    "mom=[(0.9, 0.95)]": StepRow(step=10, values={"skipped": 0, "lr": 1e-5}),
    "[2025-02-16 16:20:08,701] [INFO] [timer.py:197:stop] epoch=0/micro_step=20/global_step=10, "
    "RunningAvgSamplesPerSec=7.5, CurrSamplesPerSec=7.25, MemAllocated=8.5GB": StepRow(
        step=10, values={"runningavgsamplespersec": 7.5, "currsamplespersec": 7.25, "memallocated": 8.5}
    ),
    " iteration       10/     300 | lm loss: 7.5E+00 |": StepRow(step=10, total=300, values={"lm loss": 7.5}),
    "500/20000 train_loss: 2.5": StepRow(step=500, total=20000, values={"train_loss": 2.5}),
    '{"loss": 2.5, "global_step/max_steps": "4/20"}': StepRow(step=4, total=20, values={"loss": 2.5}),
    '{"current_steps": 3, "total_steps": 9, "loss": 2.5}': StepRow(
        step=3, total=9, values={"total_steps": 9, "loss": 2.5}
    ),
    '{"best_metric": 0.5, "global_step": 9, "log_history": [{"loss": 2.5, "step": 1}], "memory": 1.5}': StepRow(
        step=9, is_summary=True, values={"best_metric": 0.5}
    ),
    "{'train_runtime': 9.5, 'train_loss': 2.5}": StepRow(
        step=None, is_summary=True, values={"train_runtime": 9.5, "train_loss": 2.5}
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_gives_its_row(line: str) -> None:
    wanted, row = LINES[line], RowReader().read(line)
    if wanted is None or row is None:
        assert row == wanted
        return
    assert (row.step, row.total, row.is_summary) == (wanted.step, wanted.total, wanted.is_summary)
    assert row.values == pytest.approx(wanted.values, nan_ok=True)


def test_an_object_may_be_long_and_other_lines_may_not() -> None:
    long = json.dumps({"step": 5, "text": "x" * 9000, "loss": 2.5})
    assert [row.values["loss"] for row in read([long])] == [2.5]
    assert read(["note " + "x" * 9000 + " step 5 | loss 2.5"]) == []


TABLE = """\
epoch,step,train_loss,val_loss
0,9,2.5,

0,9,,3.5
1,19,1.5,
epoch,step,train_loss
2,29,nan
x,y
""".splitlines()


def test_lightnings_table_counts_steps_from_0_and_has_empty_cells() -> None:
    rows = read(TABLE, RowReader(is_csv=True))
    assert [row.step for row in rows] == [10, 10, 20, 30]
    assert rows[0].values == {"epoch": 0, "train_loss": 2.5}
    assert rows[1].values == {"epoch": 0, "val_loss": 3.5}
    assert math.isnan(rows[3].values["train_loss"])


def test_other_tables_count_as_they_say() -> None:
    assert [row.step for row in read(["step,loss", "10,2.5", "20,1.5"], RowReader(is_csv=True))] == [10, 20]


FORM = LogFormat(step="it", values={"loss": "train.ce", "lr": "opt.lr"})
OF_USER = {
    "nested": '{"it": 5, "train": {"ce": 2.5}, "opt": {"lr": 0.5}}',
    "names with dots": '{"it": "5", "train.ce": "2.5", "opt": {"lr": 0.5}}',
    "names before numbers": "12:00 it 5 | train.ce=2.5 opt.lr: 0.5 other.train.ce 9",
    "a dictionary as Python prints it": "{'it': 5, 'train.ce': 2.5, 'opt.lr': 0.5}",
}


@pytest.mark.parametrize("name", OF_USER)
def test_a_users_format_says_where_the_numbers_are(name: str) -> None:
    (row,) = read([OF_USER[name]], RowReader(formats=(FORM,)))
    assert (row.step, row.values) == (5, {"loss": 2.5, "lr": 0.5})


def test_a_users_format_names_columns_and_other_lines_are_read_as_ever() -> None:
    (row,) = read(["it,train.ce", "5,2.5"], RowReader(formats=(FORM,), is_csv=True))
    assert (row.step, row.values) == (5, {"loss": 2.5})
    assert read(["step 7 | loss 1.5", "it 9"], RowReader(formats=(FORM,))) == read(["step 7 | loss 1.5"])


def test_a_reader_continues_after_a_restart() -> None:
    state = TypeAdapter(RowReader)
    lines = REAL_EXCERPT.split("\n")
    whole = read(lines)
    for cut in range(len(lines)):
        before = RowReader()
        rows = read(lines[:cut], before)
        after = state.validate_json(state.dump_json(before))
        assert after == before
        assert rows + read(lines[cut:], after) == whole


TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=200)
HARD = st.sampled_from(
    [
        *(
            "1e999",
            "1e300",
            "-inf",
            "nan",
            "9" * 5000,
            "9" * 30,
            "{" * 3000,
            '{"it":' * 3000 + "1" + "}" * 3000,
            "\x1b[A",
        ),
        *("\ud800", "\0", "\r", "\n", " " * 50, '"', "٣", "²", "{'loss': ", "'epoch': ", "}", "step ", ":::MLLOG "),
        *('"key": "train_loss"', '"value": ', "/", ",", bar(5, 9), bar(0, 9), bar(3, 4), "Epoch 9999: ", "%|", "| 1/"),
    ]
)


@given(st.lists(st.lists(TEXTS | HARD, max_size=8).map("".join), max_size=12), st.booleans(), st.booleans())
def test_no_lines_are_an_error(lines: list[str], is_csv: bool, is_described: bool) -> None:  # noqa: FBT001
    reader = RowReader(is_csv=is_csv, formats=(FORM,) if is_described else ())
    for row in read(lines, reader):
        assert row.step is None or row.step >= 0
        assert all(isinstance(value, float) for value in row.values.values())
    state = TypeAdapter(RowReader)
    assert state.validate_json(state.dump_json(reader)) == reader


REAL = {
    "custom_qwen/train.out": r"^step +(?P<step>\d+) \| loss (?P<loss>[\d.]+)",
    "llm.c/main.log": r"^s:(?P<step>\d+) trl:(?P<loss>[\d.]+)",
    "megatron/meg_gpt2_base_n4.out": r"^ iteration +(?P<step>\d+)/.*lm loss: (?P<loss>[\d.E+-]+)",
    "nanochat/sft_run_NAN.log": r"^step (?P<step>\d+) .*loss: (?P<loss>[\w.]+)",
    "nanogpt/run-20240214_191836-mw8ngzqq.log": r"^iter (?P<step>\d+): loss (?P<loss>[\d.]+)",
    "llamafactory/360_grpo_trainer_log.jsonl": r'"current_steps": (?P<step>\d+), .*?"loss": (?P<loss>[\d.]+)',
    "ms_swift/DeepClima_logging.jsonl": r'^\{"loss": (?P<loss>[\d.]+).*"global_step/max_steps": "(?P<step>\d+)/',
}


def lines_of(name: str) -> list[str]:
    folder, _, file = name.partition("/")
    path: Path = shared_data(f"train_logs/{folder}") / file
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


@pytest.mark.parametrize("name", REAL)
def test_losses_of_a_whole_real_log_are_at_their_steps(name: str) -> None:
    reader, wanted, right = RowReader(), 0, 0
    for line in lines_of(name):
        row, found = reader.read(line), re.search(REAL[name], line)
        if found is not None:
            wanted += 1
            loss = float(found["loss"])
            is_loss = row is not None and (math.isnan(loss) or loss in row.values.values())
            right += row is not None and is_loss and row.step == int(found["step"])
    assert wanted >= 3
    assert right >= 0.995 * wanted


DICTIONARIES = {"hf_trainer/Eso-LLaVA_sft.log": (1, 90.0), "deepspeed/CN-Mini-Phi3_sft.log": (10, 241.5)}
"""Steps from one dictionary to the next, and in an epoch."""


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_of_a_real_log_between_the_bars_of_its_steps_are_at_them(name: str) -> None:
    every, in_epoch = DICTIONARIES[name]
    reader, step, right, wanted = RowReader(), 0, 0, 0
    for line in lines_of(name):
        if re.match(r"\{'(?:loss|eval_loss)': ", line) is None:
            reader.read(line)
            continue
        shown = step
        if line.startswith("{'loss'"):
            step = (step // every + 1) * every if step else 1
            shown = step - 1
        # tqdm may not have drawn the step yet when the dictionary is printed, and draws it behind it.
        row = reader.read("\r" + bar(shown, 9000) + BLANKS + line)
        row = reader.read("\r" + bar(step, 9000)) or row
        wanted += 1
        assert row is not None
        right += row.step == step and abs(row.values["epoch"] * in_epoch - step) <= 2
    assert wanted >= 40
    assert right >= 0.995 * wanted


def test_losses_of_real_runs_are_at_their_steps_in_lightnings_table() -> None:
    wanted, right = 0, 0
    for path in sorted(shared_data("trainer_state").glob("*.json")):
        rows = [row for row in json.loads(path.read_text())["log_history"] if "loss" in row]
        table = ["epoch,step,train_loss,val_loss"]
        table += [f"{row.get('epoch', 0)},{row['step'] - 1},{row['loss']}," for row in rows]
        found = read(table, RowReader(is_csv=True))
        wanted += len(rows)
        right += sum(
            read.step == row["step"] and read.values["train_loss"] == row["loss"]
            for row, read in zip(rows, found, strict=True)
        )
    assert wanted > 500
    assert right >= 0.995 * wanted


def test_real_mlperf_logs_have_no_losses_of_steps() -> None:
    for path in sorted(shared_data("train_logs/mlperf_mllog").glob("*.txt")):
        lines = [line for line in path.read_text().split("\n") if ":::MLLOG" in line]
        assert len(lines) > 30
        assert read(lines) == []


def test_a_dictionary_between_bars_has_its_step_also_when_the_line_was_split_at_its_carriage_returns() -> None:
    reader, found = RowReader(), []
    for step in (10, 20, 30):
        bars = [f" {shown}%|#         | {shown}/100 [00:01<00:09, 9.0it/s]" for shown in (step - 2, step)]
        for line in (bars[0], " " * 50, "", f"{{'loss': 2.0, 'epoch': {step / 100}}}", bars[1]):
            row = reader.read(line)
            found += [] if row is None else [row.step]
    assert found == [10, 20, 30]
