"""A bundle gives the same answer again, and what is none is refused in words."""

import json
import math
import zipfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, StoreError
from tests.records import forgetting_run, scores_of_run
from tests.unit.tracker.domain.making import record_of
from tracker.adapters import gate_bundle
from tracker.adapters.gate_bundle import RecordedDecision, read_bundle, recorded_decision_of, write_bundle
from tracker.app.commands.gate import gate_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate.types import GateCase, GateWord
from tracker.domain.records.types import LatencyMetric
from tracker.domain.verdicts.candidates import known_jitter

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
    write_bundle(tmp_path / "bundle.zip", written, gate_of(written))
    found, said = read_bundle(tmp_path / "bundle.zip")
    assert found == written
    assert gate_of(found) == gate_of(written)
    assert gate_of(found).word is GateWord.REGRESSION
    assert said == RecordedDecision(program=version("checkpoint-tracker"), words=recorded_decision_of(gate_of(written)))
    assert said.words["facts"] is GateWord.REGRESSION
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.zip"]


def test_the_noise_in_a_bundle_of_an_earlier_version_is_that_of_its_candidate(tmp_path: Path) -> None:
    written = case()
    earlier = {replace(key, fingerprint="of its concurrency"): jitter for key, jitter in written.noise.jitters.items()}
    write_bundle(tmp_path / "bundle.zip", replace(written, noise=RunNoise(jitters=earlier)), gate_of(written))
    assert read_bundle(tmp_path / "bundle.zip")[0] == written


def test_a_bundle_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        write_bundle(tmp_path / "nowhere" / "bundle.zip", small(), gate_of(small()))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.zip: No such file"):
        read_bundle(tmp_path / "nothing.zip")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"{}"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(StoreError, match="damaged or not a `tracker gate` bundle"):
        read_bundle(tmp_path / "x.zip")


@pytest.mark.parametrize(
    "name", ["gate.json", "policy.json", "noise.json", "said.json", "baseline.record", "candidate.record"]
)
@pytest.mark.parametrize("content", [None, b"", b"[1]", b"\xff"])
def test_a_bundle_with_a_damaged_part_is_refused(tmp_path: Path, name: str, content: bytes | None) -> None:
    write_bundle(tmp_path / "whole.zip", small(), gate_of(small()))
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "x.zip", "w") as damaged:
        for entry in whole.namelist():
            if entry != name:
                damaged.writestr(entry, whole.read(entry))
            elif content is not None:
                damaged.writestr(entry, content)
    with pytest.raises(StoreError):
        read_bundle(tmp_path / "x.zip")


def write_changed(folder: Path, name: str, place: str, value: object) -> None:
    """Write x.zip: the bundle of `case` with one value of a JSON part changed."""
    write_bundle(folder / "whole.zip", case(), gate_of(case()))
    with zipfile.ZipFile(folder / "whole.zip") as whole, zipfile.ZipFile(folder / "x.zip", "w") as changed:
        for entry in whole.namelist():
            content = whole.read(entry)
            if entry == name:
                document = json.loads(content)
                *parts, last = place.split(".")
                inner = document
                for part in parts:
                    inner = inner[int(part) if part.isdecimal() else part]
                inner[last] = value
                content = json.dumps(document).encode()
            changed.writestr(entry, content)


@pytest.mark.parametrize("where", ["", "otherwise.", "benchmarks.facts.", "latency.0."])
def test_what_a_later_policy_demands_is_refused_and_never_left_out(tmp_path: Path, where: str) -> None:
    write_changed(tmp_path, "policy.json", f"{where}max_cost", 3)
    with pytest.raises(StoreError, match=r"max_cost.* which this version does not support") as caught:
        read_bundle(tmp_path / "x.zip")
    assert version("checkpoint-tracker") in caught.value.hint


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("policy.json", "alpha", math.nan),
        ("policy.json", "alpha", 0.5),
        ("policy.json", "alpha", 0),
        ("policy.json", "otherwise.min_effect", math.nan),
        ("policy.json", "otherwise.min_effect", 1),
        ("policy.json", "otherwise.min_effect", -0.1),
        ("policy.json", "otherwise.min_coverage", math.nan),
        ("policy.json", "otherwise.min_coverage", 0),
        ("policy.json", "benchmarks.facts.floor", math.nan),
        ("policy.json", "latency.0.quantile", 0.42),
        ("policy.json", "latency.0.max_ms", math.inf),
        ("noise.json", "jitters.0.1.tau2", math.nan),
        ("noise.json", "jitters.0.1.tau2", -1),
        ("noise.json", "jitters.0.1.tau2", 1e300),
        ("noise.json", "jitters.0.1.variance", math.nan),
    ],
)
def test_a_bundle_that_no_gate_has_written_is_no_pass(tmp_path: Path, name: str, place: str, value: float) -> None:
    """A demand that everything meets, or noise in which every loss is lost, would let through whatever is in it."""
    write_changed(tmp_path, name, place, value)
    with pytest.raises(StoreError, match="damaged or not a `tracker gate` bundle"):
        read_bundle(tmp_path / "x.zip")


def test_a_bundle_that_has_lost_its_beginning_is_damaged(tmp_path: Path) -> None:
    write_bundle(tmp_path / "whole.zip", small(), gate_of(small()))
    (tmp_path / "x.zip").write_bytes((tmp_path / "whole.zip").read_bytes()[100:])
    with pytest.raises(StoreError, match="damaged or not a `tracker gate` bundle"):
        read_bundle(tmp_path / "x.zip")


def test_a_bundle_of_a_later_version_is_named_as_such(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x.zip", small(), gate_of(small()))
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as later:
        later.writestr("gate.json", json.dumps({"schema_version": 3}))
    with pytest.raises(StoreError, match="schema version 3"):
        read_bundle(tmp_path / "y.zip")


def test_a_bundle_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path / "x.zip", small(), gate_of(small()))
    monkeypatch.setattr(gate_bundle, "MAX_BYTES", 10)
    with pytest.raises(StoreError, match="damaged or not a `tracker gate` bundle"):
        read_bundle(tmp_path / "x.zip")
