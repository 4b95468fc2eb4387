"""Logs and histories of real runs: their known trouble, and no other alert, though every row takes 100 s."""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.requires import shared_data
from tracker.domain.health.logs.ranks import printed_rank
from tracker.domain.health.logs.step_lines import step_row
from tracker.domain.health.rules.lines import plain_line
from tracker.domain.health.series.loss import SeriesFinding, SeriesName
from tracker.domain.health.series.training import RunSeries

Row = tuple[int, Mapping[str, float], int | None]
EVERY_S = 100.0
TROUBLE = {
    "poludmik__qlora-fine-tune.trainer_state.json": [SeriesName.COLLAPSED],
}


def of_log(path: Path, *, is_numbered: bool = True) -> Iterator[Row]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines):
            row = step_row(plain_line(line))
            if row is not None and is_numbered is (row.step is not None):
                yield number if row.step is None else row.step, row.values, printed_rank(line)


def of_trainer_state(path: Path) -> Iterator[Row]:
    for row in json.loads(path.read_text())["log_history"]:
        if "step" in row:
            yield row["step"], {key: float(value) for key, value in row.items() if isinstance(value, int | float)}, None


def of_table(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") as table:
        yield from csv.DictReader(table)


def of_mlperf() -> Mapping[str, Sequence[Row]]:
    runs = defaultdict[str, list[Row]](list)
    for row in of_table(shared_data("seed_repeats/mlperf_v4.0/series.csv.gz")):
        if row["key"] in {"train_loss", "throughput", "eval_accuracy"} and row["samples_or_step"]:
            named = "/".join(row[key] for key in ("submitter", "system", "benchmark", "run"))
            runs[named].append((int(float(row["samples_or_step"])), {row["key"]: float(row["value"])}, None))
    return runs


def of_nanogpt() -> Mapping[str, Sequence[Row]]:
    runs = defaultdict[str, list[Row]](list)
    for row in of_table(shared_data("seed_repeats/modded_nanogpt/val_loss.csv.gz")):
        loss = float(row["value"])  # as a loss of training, too: it is as restless
        runs[f"{row['record']}/{row['run_id']}"].append((int(row["step"]), {"val_loss": loss, "loss": loss}, None))
    return runs


@cache
def real_runs() -> Mapping[str, Sequence[Row]]:
    logs = [path for path in shared_data("train_logs").rglob("*.*") if path.is_file() and path.name != "SOURCE.md"]
    states = shared_data("trainer_state").glob("*.json")
    return {
        **{path.name: list(of_log(path)) for path in logs},
        **{f"{path.name} without steps": list(of_log(path, is_numbered=False)) for path in logs},
        **{path.name: list(of_trainer_state(path)) for path in states},
        **of_mlperf(),
        **of_nanogpt(),
    }


def found(rows: Sequence[Row], *, stored_at: int | None = None) -> tuple[SeriesFinding, ...]:
    run, state = RunSeries(), TypeAdapter(RunSeries)
    for number, (step, values, rank) in enumerate(rows):
        if number == stored_at:
            run = state.validate_json(state.dump_json(run))
        run.take(step, values, at_s=1.8e9 + EVERY_S * number, rank=rank)
    return run.findings


@cache
def findings() -> Mapping[str, tuple[SeriesFinding, ...]]:
    return {name: found(rows) for name, rows in real_runs().items()}


def test_alerts_of_real_runs_are_their_known_trouble() -> None:
    alerts = {name: [one.name for one in shown if one.is_alert] for name, shown in findings().items()}
    assert {name: names for name, names in alerts.items() if names} == TROUBLE
    assert len(alerts) > 500


def test_few_real_runs_show_anything() -> None:
    shown = {name for name, seen in findings().items() if any(not one.is_alert for one in seen)}
    assert len(shown) < 0.01 * len(real_runs())


def test_a_state_stored_in_the_middle_continues_alike() -> None:
    for name, rows in real_runs().items():
        assert found(rows, stored_at=len(rows) // 2) == findings()[name], name


@pytest.mark.parametrize("key", ["loss", "lm loss"])
def test_the_real_spike_of_a_large_model_is_found_at_its_second_point(key: str) -> None:
    rows = list(of_log(shared_data("train_logs/megatron_spikes") / "tr1-13B_iter29020-29090_SPIKE.log"))
    before = [(27_000 + 10 * k, {key: 2.775 + 0.01 * (k % 3)}, None) for k in range(200)]
    (one,) = [finding for finding in found([*before, *rows]) if finding.is_alert]
    assert (one.name, one.onset_step, one.found_step, one.over_step) == (SeriesName.SPIKE, 29050, 29060, None)
