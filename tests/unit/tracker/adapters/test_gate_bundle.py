"""A bundle gives the same answer again, and what is none is refused in words."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, StoreError
from tests.records import forgetting_run, scores_of_run
from tests.unit.tracker.domain.records import record_of
from tracker.adapters import gate_bundle
from tracker.adapters.gate_bundle import read_bundle, write_bundle
from tracker.app.gate import gate_of
from tracker.domain.compare import RunNoise
from tracker.domain.gate_rules import BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate_types import GateCase, GateWord
from tracker.domain.trials import known_jitter
from tracker.domain.types import LatencyMetric

POLICY = GatePolicy(
    alpha=0.01,
    benchmarks={"facts": BenchmarkRule(required=False, floor=0.1)},
    latency=(LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.95, max_ms=0.001),),
)


def case() -> GateCase:
    run = forgetting_run()
    jitters = known_jitter(scores_of_run(run), 0.9)
    assert jitters
    return GateCase(baseline=run.records[3], candidate=run.records[-1], policy=POLICY, noise=RunNoise(jitters=jitters))


def small() -> GateCase:
    sides = [record_of(step, {"sums": [1.0, 0.0]}) for step in (1, 2)]
    return GateCase(baseline=sides[0], candidate=sides[1], policy=GatePolicy(), noise=RunNoise())


def test_what_is_read_is_what_was_written_and_gives_the_same_answer(tmp_path: Path) -> None:
    written = case()
    write_bundle(tmp_path / "bundle.zip", written)
    found = read_bundle(tmp_path / "bundle.zip")
    assert found == written
    assert gate_of(found) == gate_of(written)
    assert gate_of(found).word is GateWord.REGRESSION
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.zip"]


def test_a_bundle_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        write_bundle(tmp_path / "nowhere" / "bundle.zip", small())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.zip cannot be read: No such file"):
        read_bundle(tmp_path / "nothing.zip")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"{}"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(StoreError, match="is no bundle"):
        read_bundle(tmp_path / "x.zip")


@pytest.mark.parametrize("name", ["gate.json", "policy.json", "noise.json", "baseline.record", "candidate.record"])
@pytest.mark.parametrize("content", [None, b"", b"[1]", b"\xff"])
def test_a_bundle_with_a_damaged_part_is_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    write_bundle(tmp_path / "whole.zip", small())
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "x.zip", "w") as damaged:
        for entry in whole.namelist():
            if entry != name:
                damaged.writestr(entry, whole.read(entry))
            elif content is not None:
                damaged.writestr(entry, content)
    with pytest.raises(StoreError):
        read_bundle(tmp_path / "x.zip")


def test_a_bundle_of_a_later_version_is_named_as_such(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x.zip", small())
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as later:
        later.writestr("gate.json", json.dumps({"version": 2}))
    with pytest.raises(StoreError, match="of version 2"):
        read_bundle(tmp_path / "y.zip")


def test_a_bundle_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "x.zip", small())
    monkeypatch.setattr(gate_bundle, "MAX_BYTES", 10)
    with pytest.raises(StoreError, match="is no bundle"):
        read_bundle(tmp_path / "x.zip")
