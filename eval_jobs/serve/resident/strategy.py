"""Decides how the next checkpoint is loaded: it already is, by a swap, as an adapter, or by a cold start.

Any doubt means a cold start, and every decision has a reason in words.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.host.machine import device_name
from eval_jobs.identity import content_hash
from eval_jobs.serve.process.readiness import UNKNOWN_VERSION
from eval_jobs.serve.resident.certificate import CertificateScope, Proof, extension_version, find_certificate
from eval_jobs.serve.resident.launch_fingerprint import LaunchFingerprint, difference
from eval_jobs.serve.resident.loaded import Resident, folder_state, identity
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.resident.sleeping import DROP_WEIGHTS, KEEP_WEIGHTS
from eval_jobs.serve.weights.fingerprint import CONFIG, Fingerprint, never_swapped, obstacle
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import layout_digest
from eval_jobs.types import SwapPolicy

COLD, STAY, SWAP, ADAPTER = "cold", "stay", "swap", "adapter"

_SEVERAL_ENGINES = re.compile(r"--?(?:data-?p|dp|api-s|asc)")
"""Arguments that run several engines behind one port: only one of them would respond to the fixed prompts."""

_CACHE_OUTSIDE = re.compile(r"--(?:kv-[to]|enable-lmcache|hicache-st)")
"""Arguments that enable an external KV cache, which is not cleared when the engine's cache is emptied."""

MAX_FAILURES = 2
"""Number of failed loads of one kind after which a worker stops trying it: each may cost a full timeout."""


@dataclass(frozen=True, kw_only=True)
class LoadStrategy:
    """How a checkpoint is loaded."""

    method: str
    reason: str
    kind: CertificateScope | None = None
    """What a proof must cover; None for `cold` and `stay`."""
    proof: Proof | None = None
    """The certificate; None: not certified yet."""
    is_sick: bool = False
    """Whether the running engine no longer responds, so that it is given only a short time to stop."""

    @property
    def certificate(self) -> str:
        """Id of the certificate; empty if there is none."""
        if self.proof is not None and self.kind is not None:
            return self.kind.id
        return ""


def choose_strategy(
    order: Order, resident: Resident | None, launch: LaunchFingerprint, *, proofs: Path, failures: Mapping[str, int]
) -> LoadStrategy:
    """Return how to load `order`.

    `launch`: of the engine that a cold start would create; `failures`: failed loads in this process, by id of their
    kind.
    """
    if resident is None:
        return _cold("no engine was running")
    reason = resident.why_gone() or _why_another_process(order, resident, launch)
    if reason:
        return _cold(reason)
    strategy = _warm_strategy(order, resident, launch, proofs, failures)
    silent = resident.why_silent() if strategy.method != COLD else ""
    if silent:
        return LoadStrategy(method=COLD, reason=silent, is_sick=True)
    return strategy


def kind_of(
    order: Order, model: Fingerprint, launch: LaunchFingerprint, *, version: str, asleep: int
) -> CertificateScope:
    """Return what a proof for loading `order` into an engine covers. `model` is its fingerprint, or its base's."""
    layout = layout_digest(model.tensors)
    shown = {"serve.dtype", "serve.args"}
    return CertificateScope(
        way=SWAP if order.adapter is None else ADAPTER,
        architecture=model.architecture,
        layout=layout if order.adapter is None else content_hash([layout, order.adapter.layout]),
        config=model.files[CONFIG],
        weights=model.dtype,
        dtype=order.spec.dtype,
        quantisation=model.quantisation,
        device=device_name(on_cpu=order.on_cpu),
        engine=f"{order.spec.engine} {version}",
        flags=order.spec.args,
        process=content_hash({name: value for name, value in launch.items() if name not in shown}),
        extension=extension_version(),
        asleep=asleep,
    )


def sleep_level(resident: Resident, proofs: Path) -> int:
    """Return the sleep level of an engine: without its weights if the next ones come by a swap, 0 for no sleep.

    An engine whose weights cannot be swapped is not worth keeping: the next checkpoint starts another one.
    """
    order, model = resident.order, resident.model
    if order.adapter is not None:
        return KEEP_WEIGHTS
    if order.spec.swap is SwapPolicy.NEVER or model is None or never_swapped(model, on_cpu=order.on_cpu):
        return 0
    proof = find_certificate(
        proofs, kind_of(order, model, resident.launch_fingerprint, version=resident.version, asleep=DROP_WEIGHTS)
    )
    if proof is None or proof.is_certificate:
        return DROP_WEIGHTS
    return 0


def _why_another_process(order: Order, resident: Resident, launch: LaunchFingerprint) -> str:
    reason = difference(resident.launch_fingerprint, launch)
    if reason:
        return reason
    if order.spec.port not in (0, resident.launch.port):
        return f"serve.port is {order.spec.port}, but the engine listens on {resident.launch.port}"
    if order.spec.swap is SwapPolicy.NEVER:
        return 'serve.swap = "never"'
    if order.adapter is not None and folder_state(order.checkpoint.base_model) != resident.base.files:
        return "files of the base model changed since the engine started"
    return _why_by_arguments([argument.replace("_", "-") for argument in order.spec.args])


def _why_by_arguments(args: Sequence[str]) -> str:
    if any(map(_SEVERAL_ENGINES.match, args)):
        return "serve.args runs several engines behind one port"
    if any(map(_CACHE_OUTSIDE.match, args)):
        return "serve.args enables an external KV cache, which could reuse entries computed with other weights"
    return ""


def _cold(reason: str) -> LoadStrategy:
    return LoadStrategy(method=COLD, reason=reason)


def _warm_strategy(
    order: Order, resident: Resident, launch: LaunchFingerprint, proofs: Path, failures: Mapping[str, int]
) -> LoadStrategy:
    if identity(order.checkpoint) in resident.loaded and resident.asleep != DROP_WEIGHTS:
        return LoadStrategy(method=STAY, reason="already loaded")
    if order.model is None or resident.model is None:
        return _cold(order.unread or "the weights that the engine started with are unknown")
    reason = _why_unproven(resident) or _why_unfit(order, order.model, resident, resident.model)
    if reason:
        return _cold(reason)
    kind = kind_of(order, order.model, launch, version=resident.version, asleep=resident.asleep)
    return _by_proof(kind, proofs, failures)


def _why_unproven(resident: Resident) -> str:
    if not resident.newest().canaries:
        # NaN computed from such weights remains in the engine's cache even after a swap (observed on a CPU).
        return "the last checkpoint failed on the fixed prompts"
    if resident.version == UNKNOWN_VERSION:
        return "the engine reports no version, so swaps cannot be certified"
    return ""


def _why_unfit(order: Order, model: Fingerprint, resident: Resident, held: Fingerprint) -> str:
    if order.adapter is None:
        never = never_swapped(model, on_cpu=order.on_cpu)
        if never:
            return f"its weights cannot be swapped: {never}"
        return obstacle(held, model)
    if order.adapter.served == resident.base.served:
        return obstacle(held, model)
    other = "the adapter's tokenizer or chat template differs from that of the running engine"
    return obstacle(held, model) or other


def _by_proof(kind: CertificateScope, proofs: Path, failures: Mapping[str, int]) -> LoadStrategy:
    what = "swaps" if kind.way == SWAP else "adapters"
    if failures.get(kind.id, 0) >= MAX_FAILURES:
        return _cold(f"{what} of this kind failed {failures[kind.id]} times in this worker")
    proof = find_certificate(proofs, kind)
    if proof is None:
        return LoadStrategy(method=kind.way, reason=f"{what} of this kind are not certified yet", kind=kind)
    if not proof.is_certificate:
        return LoadStrategy(method=COLD, reason=f"{what} of this kind are refused ({kind.id}): {proof.differed}")
    return LoadStrategy(
        method=kind.way, reason=f"certified on {proof.date:%Y-%m-%d} ({kind.id})", kind=kind, proof=proof
    )
