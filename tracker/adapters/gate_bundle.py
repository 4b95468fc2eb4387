"""All inputs of a gate's decision in one zip file, so that another machine makes the same decision.

It holds both records with their questions and answers, the policy, the known noise of the run, and the decision.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, record_from_bytes, record_to_bytes, to_document
from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.host.storage import written
from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.rules import GatePolicy
from tracker.domain.gate.types import GateCase, GateReport, GateWord
from tracker.domain.records.calibration import Calibration
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.series import SeriesKey, series_keys

MAX_BYTES = 2**30
"""Maximum size of one unpacked entry; a larger one is not read."""


@dataclass(frozen=True, kw_only=True)
class RecordedDecision:
    """The gate's decision when the bundle was written."""

    program: str
    """Version of the tracker."""
    words: Mapping[str, GateWord]
    """Decision for each benchmark; key `""`: for the whole gate."""


_POLICY = TypeAdapter(GatePolicy)
_RECORDED = TypeAdapter(RecordedDecision)
_JITTERS = TypeAdapter(tuple[tuple[SeriesKey, Jitter], ...])
_CALIBRATIONS = TypeAdapter(tuple[Calibration, ...])


def recorded_decision_of(report: GateReport) -> Mapping[str, GateWord]:
    """Return the words that `RecordedDecision` keeps of a report."""
    return {"": report.word} | {check.benchmark: check.word for check in report.benchmarks}


def write_bundle(path: Path, case: GateCase, report: GateReport) -> None:
    """Write the file as `written` does.

    Raises:
        DiskFull, StoreError: it cannot be written.
    """
    noise = {
        "jitters": _JITTERS.dump_python(tuple(case.noise.jitters.items()), mode="json"),
        "calibrations": _CALIBRATIONS.dump_python(case.noise.calibrations, mode="json"),
    }
    with (
        written(path, hint="pass another --bundle path") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        bundle.writestr("gate.json", to_document({}))
        recorded = RecordedDecision(program=version("checkpoint-tracker"), words=recorded_decision_of(report))
        bundle.writestr("said.json", _RECORDED.dump_json(recorded))
        bundle.writestr("policy.json", _POLICY.dump_json(case.policy, indent=2))
        bundle.writestr("noise.json", json.dumps(noise))
        for side in ("baseline", "candidate"):
            bundle.writestr(f"{side}.record", record_to_bytes(getattr(case, side)))


def read_bundle(path: Path) -> tuple[GateCase, RecordedDecision]:
    """Read what `write_bundle` wrote: the case, and the decision when it was written.

    Raises:
        ConfigError: the file does not exist or cannot be opened.
        StoreError: it is damaged, not a bundle, or from an incompatible version of the tracker.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="pass a `tracker gate` bundle") from error
    try:
        with file, zipfile.ZipFile(file) as bundle:
            from_document(_entry(bundle, "gate.json"), dict, what=f"the bundle {path}", hint="write the bundle again")
            recorded = _RECORDED.validate_json(_entry(bundle, "said.json"))
            return _case(bundle, path, recorded), recorded
    # OSError: zipfile seeks before the start of a file whose beginning is missing
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        LookupError,
        ValueError,
        TypeError,
        RuntimeError,
        OSError,
    ) as error:
        raise StoreError(f"{path} is damaged or not a `tracker gate` bundle", hint="write the bundle again") from error


def _case(bundle: zipfile.ZipFile, path: Path, recorded: RecordedDecision) -> GateCase:
    noise: Any = json.loads(_entry(bundle, "noise.json"))
    candidate = _record(bundle, "candidate.record")
    # Stored keys may be of an earlier version; they are of the candidate's results.
    stored = {key.benchmark: jitter for key, jitter in _JITTERS.validate_python(noise["jitters"])}
    keys = series_keys(candidate.plan, candidate.results)
    jitters = {key: stored[key.benchmark] for key in keys if key.benchmark in stored}
    if not all(0 <= jitter.tau2 <= 1 and 0 <= jitter.variance <= 1 for jitter in stored.values()):  # rejects NaN, too
        raise ValueError("jitter out of range")
    calibrations = _CALIBRATIONS.validate_python(noise["calibrations"])
    return GateCase(
        baseline=_record(bundle, "baseline.record"),
        candidate=candidate,
        policy=_policy(_entry(bundle, "policy.json"), path, recorded),
        noise=RunNoise(jitters=jitters, calibrations=calibrations),
    )


def _policy(text: bytes, path: Path, recorded: RecordedDecision) -> GatePolicy:
    """Read the policy. Fields that this version does not support are an error, because they may affect the decision."""
    policy = _POLICY.validate_json(text)
    unknown = next(_unknown(json.loads(text), _POLICY.dump_python(policy, mode="json"), ""), None)
    if unknown is not None:
        what = f"{path} requires {unknown!r}, which this version does not support"
        raise StoreError(what, hint=f"replay it with checkpoint-tracker {recorded.program}, which wrote it")
    return policy


def _unknown(given: object, known: object, place: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(known, dict):
        yield from (f"{place}{key}" for key in given if key not in known)
        for key in given.keys() & known.keys():
            yield from _unknown(given[key], known[key], f"{place}{key}.")
    elif isinstance(given, list) and isinstance(known, list):
        for one, other in zip(given, known, strict=True):
            yield from _unknown(one, other, place)


def _record(bundle: zipfile.ZipFile, name: str) -> EvalRecord:
    packed = _entry(bundle, name)
    if len(zlib.decompressobj().decompress(packed, MAX_BYTES + 1)) > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return record_from_bytes(packed)


def _entry(bundle: zipfile.ZipFile, name: str) -> bytes:
    if bundle.getinfo(name).file_size > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return bundle.read(name)
