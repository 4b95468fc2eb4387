"""Proofs that weights loaded into a running engine give the same outputs as after a cold start, to the bit.

    kind = CertificateScope(way="swap", architecture="LlamaForCausalLM", ...)
    proof = find_certificate(folder, kind)              # None: not tested yet
    ...                                     # load the checkpoint, run the canaries, start cold, run them again
    proof = Proof(kind=kind, differed=first_difference(warm, cold), ...)
    store(folder, proof)

One JSON file for each kind below the work folder, written atomically; an unreadable file counts as missing. A
difference (refusal) is stored in a separate file and takes precedence over any certificate, in whatever order two
workers write. If you delete either file, the next checkpoint is tested again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from eval_jobs.codec import from_document, to_document
from eval_jobs.errors import StoreError, TrackerError
from eval_jobs.identity import content_hash
from eval_jobs.serve import worker_extension
from eval_jobs.serve.process.lifecycle import mapped_os_errors
from eval_jobs.types import Canary

log = logging.getLogger(__name__)

ID_CHARS = 12
CERTIFICATE, REFUSAL = ".certificate.json", ".refusal.json"


@dataclass(frozen=True, kw_only=True)
class CertificateScope:
    """Conditions that one proof covers; under any other, the engine may take another code path."""

    way: str
    """`swap` or `adapter`."""
    architecture: str
    layout: str
    """Hash of the tensors' names, types and shapes, including the base's: shapes determine the kernels."""
    config: str
    """Hash of config.json, for adapters the base's: it determines the layers, and which of them share weights."""
    weights: str
    """Tensor types in the weight files."""
    dtype: str
    """Setting `serve.dtype`."""
    quantisation: str
    device: str
    engine: str
    """Name and version."""
    flags: tuple[str, ...]
    """Additional arguments of the engine."""
    process: str
    """Hash of everything else that affects the process."""
    extension: str
    """Hash of the code that loads the weights inside the engine."""
    asleep: int
    """Sleep level that the engine was woken from, 0 for none."""

    @property
    def id(self) -> str:
        """Identifier of this kind: a prefix of the content hash."""
        return content_hash(asdict(self))[:ID_CHARS]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A certificate, or a refusal if `differed` is not empty."""

    kind: CertificateScope
    date: datetime
    checkpoint: str
    """Run, step and digest of the tested checkpoint, in words."""
    canaries: str
    """Hash of the outputs after the cold start."""
    took_s: float
    """Seconds from the arrival of the checkpoint to the last output, including the cold start."""
    differed: str = ""
    """How the outputs of the running engine differed, or why there were none."""

    @property
    def is_certificate(self) -> bool:
        """Return whether the outputs were identical."""
        return not self.differed


def first_difference(warm: tuple[Canary, ...], cold: tuple[Canary, ...]) -> str:
    """Return the first difference, in words; "" if the outputs are bit-identical. Pure."""
    if len(warm) != len(cold):
        return f"outputs: {len(warm)} (expected {len(cold)})"
    for number, (left, right) in enumerate(zip(warm, cold, strict=True), start=1):
        if left.prompt != right.prompt:
            return f"prompt {number} differs"
        if left.tokens != right.tokens:
            place = next((i for i, (a, b) in enumerate(zip(left.tokens, right.tokens, strict=False)) if a != b), 0)
            return f"output {number}: token {place + 1} is {left.tokens[place]} (expected {right.tokens[place]})"
        if left.logprobs != right.logprobs:
            gap = max(abs(a - b) for a, b in zip(left.logprobs, right.logprobs, strict=True))
            return f"output {number}: log probabilities differ by up to {gap:.3g}"
    return ""


def canaries_digest(canaries: tuple[Canary, ...]) -> str:
    """Return the hash of prompts, tokens and exact log probabilities. Pure."""
    return content_hash([[c.prompt, c.tokens, [number.hex() for number in c.logprobs]] for c in canaries])


def find_certificate(folder: Path, kind: CertificateScope) -> Proof | None:
    """Return the refusal of this kind, else its certificate, else None."""
    found = (_read(folder / f"{kind.id}{suffix}") for suffix in (REFUSAL, CERTIFICATE))
    return next((proof for proof in found if proof is not None and proof.kind == kind), None)


def store(folder: Path, proof: Proof) -> None:
    """Write the proof, replacing an earlier one of the same kind and result.

    A failure is only logged: it costs another test with a later checkpoint.
    """
    path = folder / f"{proof.kind.id}{CERTIFICATE if proof.is_certificate else REFUSAL}"
    draft = path.with_suffix(f".{secrets.token_hex(4)}.draft")
    text = to_document({"proof": _PROOF.dump_python(proof, mode="json")}, indent=1)
    try:
        with mapped_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(text, encoding="ascii")
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
    except TrackerError as error:
        log.warning("cannot store the result of a weight swap check: %s", error)


def every_proof(folder: Path) -> Iterator[tuple[Path, Proof]]:
    """Yield all readable certificates and refusals with their files, in a stable order."""
    for path in sorted([*folder.glob(f"*{CERTIFICATE}"), *folder.glob(f"*{REFUSAL}")]):
        proof = _read(path)
        if proof is not None and path.name.startswith(proof.kind.id):
            yield path, proof


@cache
def extension_version() -> str:
    """Return the hash of the code that runs inside the engine."""
    folder = Path(worker_extension.__file__).parent
    return content_hash([[path.name, path.read_text(encoding="utf-8")] for path in sorted(folder.rglob("*.py"))])


_PROOF = TypeAdapter(Proof)


def _read(path: Path) -> Proof | None:
    try:
        return from_document(path.read_bytes(), lambda d: _PROOF.validate_python(d["proof"]), what=str(path))
    except FileNotFoundError:
        return None
    except (OSError, StoreError):
        log.warning("ignoring unreadable certificate %s", path)
        return None
