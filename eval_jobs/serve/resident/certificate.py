"""Proofs that weights which were put into a running engine answer as after a cold start, bit by bit.

    kind = CertificateScope(way="swap", architecture="LlamaForCausalLM", ...)
    proof = find_certificate(folder, kind)              # None: not tried yet
    ...                                     # the checkpoint is put in, asked, started cold, asked again
    proof = compare_answers(kind, warm, cold, ...)
    store(folder, proof)

One JSON file for each kind below the work folder, written whole or not at all; what cannot be read counts as not
there. That something differed lies in a file of its own and counts more than any certificate, in whatever order two
workers write. A person may delete either: the next checkpoint is tried again.
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
from eval_jobs.types import Canary, Checkpoint

log = logging.getLogger(__name__)

ID_CHARS = 12
CERTIFICATE, REFUSAL = ".certificate.json", ".refusal.json"


@dataclass(frozen=True, kw_only=True)
class CertificateScope:
    """What one proof holds for: with anything else, another way through the engine's code may be taken."""

    way: str
    """`swap` or `adapter`."""
    architecture: str
    layout: str
    """Hash of names, types and shapes of the tensors, the base's included: shapes choose kernels."""
    config: str
    """Hash of config.json, a base's for adapters: it chooses layers, and which of them share weights."""
    weights: str
    """Types of the weights in the files."""
    dtype: str
    """Setting `serve.dtype`."""
    quantisation: str
    device: str
    engine: str
    """Name and version."""
    flags: tuple[str, ...]
    """Further arguments of the engine."""
    process: str
    """Hash of everything else that shapes the process."""
    extension: str
    """Hash of what loads the weights inside the engine."""
    asleep: int
    """Level of the sleep that the engine was woken from, 0 for none."""

    @property
    def id(self) -> str:
        """Name of this kind."""
        return content_hash(asdict(self))[:ID_CHARS]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A certificate, or a refusal when `differed` says something."""

    kind: CertificateScope
    date: datetime
    checkpoint: str
    """What it was tried with, in words."""
    canaries: str
    """Hash of what the cold engine answered."""
    took_s: float
    """From the arrival of the checkpoint to the last answer, the cold start included."""
    differed: str = ""

    @property
    def is_certificate(self) -> bool:
        """Return whether both answered alike."""
        return not self.differed


def compare_answers(
    kind: CertificateScope, warm: tuple[Canary, ...] | str, cold: tuple[Canary, ...], tried: Tried
) -> Proof:
    """Compare what an engine answered warm and cold. Pure.

    Args:
        kind: what it is a proof for.
        warm: the answers of the running engine, or why it gave none.
        cold: the answers after a cold start, at least one.
        tried: when and with what.
    """
    return Proof(
        kind=kind,
        date=tried.date,
        checkpoint=f"{tried.checkpoint.run_id} step {tried.checkpoint.step} ({tried.checkpoint.digest[:12]})",
        canaries=canaries_digest(cold),
        took_s=tried.took_s,
        differed=warm if isinstance(warm, str) else first_difference(warm, cold),
    )


@dataclass(frozen=True, kw_only=True)
class Tried:
    """When and with what a proof was made."""

    checkpoint: Checkpoint
    date: datetime
    took_s: float


def first_difference(warm: tuple[Canary, ...], cold: tuple[Canary, ...]) -> str:
    """Return what differs first, in words; "" when all is equal to the bit. Pure."""
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
    """Return the hash of prompts, tokens and log probabilities, the latter to the bit. Pure."""
    return content_hash([[c.prompt, c.tokens, [number.hex() for number in c.logprobs]] for c in canaries])


def find_certificate(folder: Path, kind: CertificateScope) -> Proof | None:
    """Return the refusal of this kind, else its certificate, else None."""
    found = (_read(folder / f"{kind.id}{suffix}") for suffix in (REFUSAL, CERTIFICATE))
    return next((proof for proof in found if proof is not None and proof.kind == kind), None)


def store(folder: Path, proof: Proof) -> None:
    """Write the proof, in the place of an earlier one of the same kind and result.

    Raises:
        DiskFull, ServeError: it cannot be written.
    """
    path = folder / f"{proof.kind.id}{CERTIFICATE if proof.is_certificate else REFUSAL}"
    draft = path.with_suffix(f".{secrets.token_hex(4)}.draft")
    with mapped_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_text(to_document({"proof": _PROOF.dump_python(proof, mode="json")}, indent=1), encoding="ascii")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def store_if_possible(folder: Path, proof: Proof) -> None:
    """Store it; a disk that takes nothing costs only another try with a later checkpoint."""
    try:
        store(folder, proof)
    except TrackerError as error:
        log.warning("cannot store the result of a weight swap check: %s", error)


def every_proof(folder: Path) -> Iterator[tuple[Path, Proof]]:
    """Yield all certificates and refusals that can be read, with their files, in a lasting order."""
    for path in sorted([*folder.glob(f"*{CERTIFICATE}"), *folder.glob(f"*{REFUSAL}")]):
        proof = _read(path)
        if proof is not None and path.name.startswith(proof.kind.id):
            yield path, proof


@cache
def extension_version() -> str:
    """Return the hash of the code that runs inside the engine."""
    folder = Path(worker_extension.__file__).parent
    return content_hash([[path.name, path.read_text(encoding="utf-8")] for path in sorted(folder.rglob("*.py"))])


# --- private

_PROOF = TypeAdapter(Proof)


def _read(path: Path) -> Proof | None:
    try:
        return from_document(path.read_bytes(), lambda d: _PROOF.validate_python(d["proof"]), what=str(path))
    except FileNotFoundError:
        return None
    except (OSError, StoreError):
        log.warning("ignoring unreadable certificate %s", path)
        return None
