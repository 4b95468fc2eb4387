"""Everything that a gate's answer rests on in one zip file, so that another machine gives the same answer.

    write_bundle(path, case)
    gate_of(read_bundle(path))

It holds both records with their questions and answers, the policy, and what was known of the run's noise.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.types import EvalRecord
from tracker.domain.calibration_types import Calibration
from tracker.domain.compare import RunNoise
from tracker.domain.gate_rules import GatePolicy
from tracker.domain.gate_types import GateCase
from tracker.domain.regression.jitter import Jitter
from tracker.domain.score_series import SeriesKey

VERSION = 1
MAX_BYTES = 2**30
"""Of one entry, unpacked: a file that unpacks to more is not read."""

_POLICY = TypeAdapter(GatePolicy)
_JITTERS = TypeAdapter(tuple[tuple[SeriesKey, Jitter], ...])
_CALIBRATIONS = TypeAdapter(tuple[Calibration, ...])


def write_bundle(path: Path, case: GateCase) -> None:
    """Write the file, whole or not at all; an older one of that name is replaced.

    Raises:
        StoreError: it cannot be written.
    """
    noise = {
        "jitters": _JITTERS.dump_python(tuple(case.noise.jitters.items()), mode="json"),
        "calibrations": _CALIBRATIONS.dump_python(case.noise.calibrations, mode="json"),
    }
    draft = path.with_name(f".{path.name}.draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("gate.json", json.dumps({"version": VERSION}))
            bundle.writestr("policy.json", _POLICY.dump_json(case.policy, indent=2))
            bundle.writestr("noise.json", json.dumps(noise))
            for side in ("baseline", "candidate"):
                bundle.writestr(f"{side}.record", record_to_bytes(getattr(case, side)))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written: {error.strerror}", hint="name another --bundle") from error


def read_bundle(path: Path) -> GateCase:
    """Read what `write_bundle` wrote.

    Raises:
        ConfigError: there is no such file, or it is none of ours.
        StoreError: it is damaged, or of another version of the tracker.
    """
    try:
        with zipfile.ZipFile(path) as bundle:
            version = json.loads(_entry(bundle, "gate.json"))["version"]
            if version != VERSION:
                what = f"{path} is a bundle of version {version}, and this program reads version {VERSION}"
                raise StoreError(what, hint="use the version of the tracker that wrote it")
            noise: Any = json.loads(_entry(bundle, "noise.json"))
            return GateCase(
                baseline=_record(bundle, "baseline.record"),
                candidate=_record(bundle, "candidate.record"),
                policy=_POLICY.validate_json(_entry(bundle, "policy.json")),
                noise=RunNoise(
                    jitters=dict(_JITTERS.validate_python(noise["jitters"])),
                    calibrations=_CALIBRATIONS.validate_python(noise["calibrations"]),
                ),
            )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="name a file of --bundle") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise StoreError(f"{path} is no bundle of `tracker gate`, or damaged", hint="write it again") from error


# --- private


def _record(bundle: zipfile.ZipFile, name: str) -> EvalRecord:
    packed = _entry(bundle, name)
    if len(zlib.decompressobj().decompress(packed, MAX_BYTES + 1)) > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return record_from_bytes(packed)


def _entry(bundle: zipfile.ZipFile, name: str) -> bytes:
    if bundle.getinfo(name).file_size > MAX_BYTES:
        raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
    return bundle.read(name)
