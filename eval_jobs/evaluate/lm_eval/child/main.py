"""Process of the harness: it registers our models with lm-evaluation-harness and runs its own command, once.

It imports what any environment with lm-eval[api] has: the standard library, httpx and the harness. The process ends
when its stdin closes, so it never outlives its parent.
"""

import logging
import os
import runpy
import sys
from pathlib import Path

from eval_jobs.errors import BadData, EvaluateError, TrackerError
from eval_jobs.evaluate.asking.http_client import api_key
from eval_jobs.evaluate.asking.pipes import Send, own_stdout, requests_from_stdin
from eval_jobs.evaluate.common.protocol import Message, error_message
from eval_jobs.evaluate.lm_eval.child.session import Session
from eval_jobs.host.cpu_placement import CpuAffinity, set_niceness
from eval_jobs.host.storage import is_full, storage_error

log = logging.getLogger("eval_jobs.evaluate.lm_eval.child.main")


def main() -> None:
    """Handle one request, and wait until stdin closes."""
    send = own_stdout()
    requests = requests_from_stdin()
    send({"type": "ready"})
    request = requests.get()
    CpuAffinity().set(request["client_cores"])
    set_niceness(os.getpgrp(), request["client_niceness"])
    send(run_harness(request, send))
    requests.get()


def run_harness(request: Message, send: Send) -> Message:
    """Run the harness, and return its result or error as a message."""
    task = request["tasks"][0]
    try:
        key = api_key(request["api_key_env"])
        os.environ.pop(request["api_key_env"], None)  # tasks run third-party code
        with Session(request, send, key=key) as session:
            _run_harness(task, session)
            session.finish()
        message: Message = {"type": "result", "planned": session.journal.planned}
    except TrackerError as error:
        message = error_message(error)
    except BaseException as error:  # tasks may call `sys.exit`: the parent would wait forever
        log.exception("lm-eval failed")
        message = error_message(_explained(error, task))
    return message | {"benchmark": task["benchmark"]}


def _run_harness(task: Message, session: Session) -> None:
    if task["offline"]:
        os.environ["HF_DATASETS_OFFLINE"] = "1"  # read once, when `datasets` is imported
    from eval_jobs.evaluate.lm_eval.child.model import register

    register(session, tokenizer=task["tokenizer"])
    sys.argv = [task["command"], *task["arguments"]]
    try:
        _run_command(Path(task["command"]))
    except SystemExit as ended:
        if ended.code:
            raise


def _run_command(command: Path) -> None:
    """Run the harness's own command in this process; if it is not a Python script, call its function directly."""
    try:
        compile(command.read_bytes(), command, "exec")
    except (SyntaxError, ValueError):
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()
    else:
        runpy.run_path(str(command), run_name="__main__")


def _explained(error: BaseException, task: Message) -> TrackerError:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and is_full(error):
        return storage_error(Path(task["task"]["work_dir"]), error)
    if "Tasks not found" in text or "No tasks specified" in text:
        return BadData(
            f"lm-eval has no task `{task['adapter']}`",
            hint="see `lm_eval ls tasks`; for custom tasks, set `data` to their folder",
        )
    if isinstance(error, ImportError):
        return EvaluateError(
            f"`{task['adapter']}` needs a package missing from lm-eval's environment: {error}",
            hint="install it in that environment",
        )
    return EvaluateError(f"lm-eval failed on `{task['adapter']}`: {text}", hint="read the traceback")
