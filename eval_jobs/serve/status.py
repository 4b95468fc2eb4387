"""Status of the engines in a work folder, and which ways of loading weights are certified. Reads files only."""

from dataclasses import dataclass
from pathlib import Path

from eval_jobs.host import proc
from eval_jobs.host.local_http import parsed_json
from eval_jobs.serve.process.lifecycle import RunningEngine, running_engines
from eval_jobs.serve.resident.certificate import Proof, every_proof


@dataclass(frozen=True, kw_only=True)
class KeptEngine:
    """An engine that runs on this machine."""

    name: str
    service: str
    """`starting`, `serving`, `idle`, `asleep`, or `leftover` if its worker has exited."""
    engine: str
    """Name and version; empty while it starts."""
    port: int
    """0 while it starts."""
    checkpoints: tuple[str, ...]
    """Loaded checkpoints as `run step N`, the most recently served one last."""
    load_method: str
    certificate: str
    worker_pid: int
    log: str


@dataclass(frozen=True, kw_only=True)
class KeptProof:
    """A certificate or refusal, and its file."""

    proof: Proof
    file: str


@dataclass(frozen=True, kw_only=True)
class EngineStatus:
    """Engines and certificates of a work folder."""

    engines: tuple[KeptEngine, ...]
    proofs: tuple[KeptProof, ...]


def engine_status(work_dir: Path) -> EngineStatus:
    """Return the status; engines on other machines that share the folder are not included."""
    engines = running_engines(work_dir / "engines") if proc.is_visible() else ()
    proofs = every_proof(work_dir / "certificates")
    return EngineStatus(
        engines=tuple(map(_resident, engines)),
        proofs=tuple(KeptProof(proof=proof, file=str(path)) for path, proof in proofs),
    )


def _resident(engine: RunningEngine) -> KeptEngine:
    note = parsed_json(engine.note.encode())
    if not isinstance(note, dict):  # before the worker's first note
        note = {}
    held = note.get("checkpoints")
    port = note.get("port")
    return KeptEngine(
        name=engine.name,
        service=str(note.get("service", "starting")) if engine.is_owned else "leftover",
        engine=str(note.get("engine", "")),
        port=port if isinstance(port, int) else 0,
        checkpoints=tuple(f"{run} step {step}" for run, step in held) if isinstance(held, list) else (),
        load_method=str(note.get("load_method", "")),
        certificate=str(note.get("certificate", "")),
        worker_pid=engine.record.owner_pid,
        log=engine.record.log,
    )
