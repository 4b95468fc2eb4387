"""Waits until a started engine serves its model, or raises an error with the reason if it never will; why it died.

A response on the port proves nothing: another server may have taken the port while ours was importing. So the process
is watched, and /v1/models must list the random name that is unique to this start.
"""

import signal
from pathlib import Path

from eval_jobs.errors import PortTaken, ServeError, ServerDied, ServerKilled, StartTimeout, WrongModel
from eval_jobs.host.bounded.files import tail_of
from eval_jobs.host.bounded.replies import storable
from eval_jobs.host.unforeseen import exit_words
from eval_jobs.limits import cut
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process import logfile
from eval_jobs.serve.process.control import EngineReply, ask, served_model_names
from eval_jobs.serve.process.launch import HOST, Launch
from eval_jobs.serve.process.lifecycle import EngineProcess

POLL_S = 0.25
PROGRESS_EVERY_S = 2.0
LOG_TAIL_BYTES = 4_000_000
"""An engine that dies logs a traceback of 5 kB for every request in flight."""
UNKNOWN_VERSION = "unknown"


def wait_until_ready(engine: EngineProcess, launch: Launch, clock: Clock, *, timeout_s: float, progress: Note) -> None:
    """Return as soon as the engine lists the model that it was started with.

    Raises:
        ServerDied, ServerKilled, PortTaken: the process exited.
        StartTimeout: the engine was not ready after `timeout_s`.
        WrongModel: another server responds on its port.
    """
    started_s = clock.monotonic_s()
    shown_s = -PROGRESS_EVERY_S
    while True:
        waited_s = clock.monotonic_s() - started_s
        if waited_s - shown_s >= PROGRESS_EVERY_S:  # also of an engine that is ready at the first look
            progress(f"starting the engine ({waited_s:.0f} s)")
            shown_s = waited_s
        if _answers(engine, launch):
            return
        if waited_s >= timeout_s:
            raise _timed_out(engine.log, timeout_s)
        clock.sleep(POLL_S)


def death(engine: EngineProcess, what: str) -> ServerDied | None:
    """Return why a running engine died while serving `what`, None if it did not.

    Its API server may still run. Without an error in the log, another process has killed a part of it.
    """
    code, text = engine.exit_code(), _tail(engine.log)
    if code is None and not logfile.is_dead(text):
        return None
    reason = logfile.cause_of_death(text)
    words = exit_words(code) if code else "a process was killed"
    kind, advice = ServerDied, logfile.advice(reason, 0)
    if not reason and (code or 0) <= 0:
        kind, advice = ServerKilled, logfile.advice(reason, -signal.SIGKILL)
    return kind(f"the engine died ({reason or words}) while serving {what}", hint=f"{advice}read its log {engine.log}")


def engine_version(port: int) -> str:
    """Return the version that the engine reports, `UNKNOWN_VERSION` if it reports none."""
    answer = ask(port, "/version")
    body = answer.body if answer is not None else None
    if isinstance(body, dict):
        return str(storable(cut(str(body.get("version") or UNKNOWN_VERSION))))
    return UNKNOWN_VERSION


def _answers(engine: EngineProcess, launch: Launch) -> bool:
    """Return whether the engine is ready; raise if it never will be."""
    code = engine.exit_code()
    if code is not None:
        raise _died(engine.log, code, launch)
    answer = ask(launch.port, "/v1/models")
    if answer is None or answer.status == 503:
        return False
    wanted = launch.adapter or launch.name
    if wanted in served_model_names(answer.body):
        return True
    raise _wrong(answer, launch, engine.log)


def _tail(path: Path) -> str:
    try:
        return tail_of(path, LOG_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _wrong(answer: EngineReply, launch: Launch, log_file: Path) -> WrongModel:
    said = f"HTTP {answer.status}, models: {', '.join(served_model_names(answer.body)) or 'none'}"
    return WrongModel(
        f"another server listens on port {launch.port} on {HOST}: "
        f"{said if answer.status else 'not HTTP'} (expected {launch.name})",
        hint=f"set serve.port = 0 to pick a free port; engine log: {log_file}",
    )


def _died(log_file: Path, code: int, launch: Launch) -> ServeError:
    text = _tail(log_file)
    if logfile.PORT_IN_USE in text.lower():
        return PortTaken(
            f"port {launch.port} on {HOST} was taken by another process while the engine started",
            hint=f"retry, or set serve.port = 0 to pick a free port; engine log: {log_file}",
        )
    reason = logfile.last_error(text) or "no output"
    kind = ServerKilled if code < 0 else ServerDied
    return kind(
        f"the engine exited while loading {launch.checkpoint.uri} ({exit_words(code)}): {reason}",
        hint=f"{logfile.advice(reason, code)}read the engine log {log_file}",
        lacks_launcher=logfile.lacks_module(reason, launch.launcher),
    )


def _timed_out(log_file: Path, timeout_s: float) -> StartTimeout:
    lines = [line for line in map(logfile.without_prefixes, _tail(log_file).splitlines()) if line]
    return StartTimeout(
        f"the engine was not ready after {timeout_s:g} s; last log line: {lines[-1] if lines else 'none'}",
        hint=f"increase serve.startup_timeout_s, or read the engine log {log_file}",
    )
