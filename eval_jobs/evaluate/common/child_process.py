"""Parent side of the evaluator's child process: start it, send requests, detect its end, stop it."""

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

import eval_jobs
from eval_jobs.errors import EvaluatorDied
from eval_jobs.evaluate.common.protocol import Message, decode, encode
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import HUB_TOKENS, passed_on
from eval_jobs.host.storage import mapped_storage_errors
from eval_jobs.host.unforeseen import exit_words

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.5
MAX_REQUESTS = 500
"""Requests after which the child is replaced, before the next request."""
SETTLED_AFTER = 5
"""Number of requests after which everything is imported and every cache is filled."""
MAX_GROWTH_BYTES = 200 * 2**20
"""Growth of memory since then, above which the child is replaced."""
EVALSCOPE = ("-m", "eval_jobs.evaluate.evalscope.child.main")
CACHE_VARIABLES = {
    "HF_HOME": "huggingface",
    "HF_DATASETS_CACHE": "huggingface/datasets",
    "MODELSCOPE_CACHE": "modelscope",
    "MODELSCOPE_CREDENTIALS_PATH": "modelscope/credentials",
    "EVALSCOPE_CACHE": "evalscope",
    "XDG_CACHE_HOME": "xdg",
    "NLTK_DATA": "nltk_data",
}
"""Cache folders of EvalScope and its libraries; values set by the user take precedence."""


class ChildProcess:
    """One running child. It sends `ready` when it accepts requests, then handles one request at a time."""

    def __init__(
        self,
        python: str,
        work_dir: Path,
        log_path: Path,
        *,
        offline: bool,
        key: str = "",
        program: Sequence[str] = EVALSCOPE,
    ) -> None:
        """Start the child; `program` holds the arguments of the interpreter."""
        self.log_path = log_path
        self.offline = offline
        self.key = key
        """Name of the environment variable with the API key of the endpoint."""
        self.is_ready = False
        """Whether the child has sent `ready`."""
        with mapped_storage_errors(log_path.parent):
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log_file = log_path.open("ab")
        with log_file:
            self._process = self._start([python, "-P", *program], work_dir, log_file)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._n_requests = 0
        self._settled_bytes = 0
        threading.Thread(target=self._read, daemon=True, name="evaluator messages").start()
        log.info("evaluator started, pid %d, log %s", self._process.pid, log_path)

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until the child is ready.

        Raises:
            EvaluatorDied: it exited, or sent no message for `START_TIMEOUT_S`.
        """
        while self._next(START_TIMEOUT_S)["type"] != "ready":
            pass
        self.is_ready = True

    def ask(self, request: Message, *, silence_s: float) -> Iterator[Message]:
        """Send a request, and yield messages until every task has its result or error.

        Raises:
            EvaluatorDied: the child exited, or sent no message for `silence_s`.
        """
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            self._process.stdin.write(encode(request))
            self._process.stdin.flush()
        except OSError as error:
            raise self._died() from error
        self._n_requests += 1
        left = len(request["tasks"])
        while left:
            message = self._next(silence_s)
            left -= message["type"] != "progress"
            yield message

    def is_worn(self) -> bool:
        """Return whether to replace the child before the next request: after many requests, or if its memory grows."""
        if self._n_requests == SETTLED_AFTER:
            self._settled_bytes = self._rss_bytes()
        grown = self._n_requests > SETTLED_AFTER and self._rss_bytes() > self._settled_bytes + MAX_GROWTH_BYTES
        if grown or self._n_requests >= MAX_REQUESTS:
            log.info("restarting the evaluator: %d requests, %d bytes of memory", self._n_requests, self._rss_bytes())
        return grown or self._n_requests >= MAX_REQUESTS

    def stop(self) -> None:
        """Stop the child and everything it started. Calling it twice is harmless."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # the child then kills its own process group
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self, command: list[str], work_dir: Path, log_file: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=child_environment(os.environ, work_dir, offline=self.offline, key=self.key),
                cwd=work_dir,
                start_new_session=True,
            )
        except OSError as error:
            raise EvaluatorDied(
                f"cannot start the evaluator with {command[0]}: {error.strerror}",
                hint="check that this interpreter exists and is executable",
            ) from error

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        with self._process.stdout as lines:
            for line in lines:
                message = decode(line)
                if message is not None:
                    self._messages.put(message)

    def _rss_bytes(self) -> int:
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def _next(self, timeout_s: float) -> Message:
        """Return the next message; raise `EvaluatorDied` when the process has exited or the timeout has passed.

        The end of the pipe is not enough: forked processes may keep it open after the child has exited.
        """
        waited_s = 0.0
        while True:
            gone = not self.is_running()
            try:
                return self._messages.get(timeout=POLL_S)
            except queue.Empty:
                waited_s += POLL_S
            if gone:
                raise self._died()
            if waited_s >= timeout_s:
                self.stop()
                raise EvaluatorDied(
                    f"stopped the evaluator: no message for {timeout_s:.0f} s", hint=f"see {self.log_path}"
                )

    def _died(self) -> EvaluatorDied:
        self.stop()
        return EvaluatorDied(
            f"the evaluator exited unexpectedly ({exit_words(self._process.returncode)})",
            hint=f"see {self.log_path}; a retry requests only the missing answers",
        )


def child_environment(
    environment: Mapping[str, str], work_dir: Path, *, offline: bool, key: str = ""
) -> dict[str, str]:
    """Return the child's environment: caches below `work_dir`, no GPU, no proxy for loopback, few secrets.

    Args:
        environment: the user's; its settings of caches and the hub take precedence.
        work_dir: parent of the cache folders.
        offline: disable the hub, unless the user sets otherwise.
        key: name of the variable with the endpoint's key; of other secrets only hub tokens are kept.
    """
    caches = {name: str(work_dir / "cache" / folder) for name, folder in CACHE_VARIABLES.items()}
    result = caches | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    result |= passed_on(environment, keep=(key, *HUB_TOKENS))
    no_proxy = ",".join(filter(None, [environment.get("NO_PROXY") or environment.get("no_proxy"), *LOOPBACK]))
    result |= {
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # a `datasets` folder in the working directory is not the package
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }
    result.pop("TQDM_DISABLE", None)  # EvalScope's own progress bar fails with it
    root = Path(eval_jobs.__file__).parent.parent
    if root.name != "site-packages":  # a source tree may not be on the path of the child's interpreter
        result["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environment.get("PYTHONPATH")]))
    return result
