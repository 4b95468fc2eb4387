"""The parent's side of the evaluator's child: start it, ask it, notice its death, stop it."""

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
from eval_jobs.host.secrets import HUB_TOKENS, without_secrets
from eval_jobs.host.storage import storage_error

log = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.5
MAX_REQUESTS = 500
"""After so many a child has done enough; a new one starts with the next request."""
SETTLED_AFTER = 5
"""Requests until everything is imported and every cache is filled."""
MAX_GROWTH_BYTES = 200 * 2**20
"""Since then."""
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
"""Where EvalScope and its libraries keep things; a value that the user has set stands."""


class ChildProcess:
    """One running child. It says `ready` when it can be asked, then carries out one request at a time."""

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
        """Start it; `program` is what that interpreter runs."""
        self.log_path = log_path
        self.offline = offline
        self.key = key
        """Name of the environment variable with the key that it may know."""
        self.is_ready = False
        """Whether it has said so."""
        with _open_log(log_path) as log_file:
            self._process = self._start([python, "-P", *program], work_dir, log_file)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._n_requests = 0
        self._settled_bytes = 0
        threading.Thread(target=self._read, daemon=True, name="evaluator messages").start()
        log.info("evaluator started, pid %d, log %s", self._process.pid, log_path)

    @property
    def pid(self) -> int:
        """Process id, which is also its process group."""
        return self._process.pid

    def is_running(self) -> bool:
        """Tell whether it can be asked."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Return when it is ready.

        Raises:
            EvaluatorDied: it ended, or took longer than `START_TIMEOUT_S`.
        """
        while self._next(START_TIMEOUT_S)["type"] != "ready":
            pass
        self.is_ready = True

    def ask(self, request: Message, *, silence_s: float) -> Iterator[Message]:
        """Send a request, and yield what it says until it has said of every task what became of it.

        Raises:
            EvaluatorDied: it ended, or said nothing for `silence_s`.
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
        """Tell whether it should be replaced before the next request: it has done many, or its memory grows."""
        if self._n_requests == SETTLED_AFTER:
            self._settled_bytes = self._rss_bytes()
        grown = self._n_requests > SETTLED_AFTER and self._rss_bytes() > self._settled_bytes + MAX_GROWTH_BYTES
        if grown or self._n_requests >= MAX_REQUESTS:
            log.info("restarting the evaluator: %d requests, %d bytes of memory", self._n_requests, self._rss_bytes())
        return grown or self._n_requests >= MAX_REQUESTS

    def stop(self) -> None:
        """End it and everything it started. Calling it twice is harmless."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # it kills its own group
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    # --- private

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
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def _next(self, timeout_s: float) -> Message:
        """Return the next message; both the end of its pipe and the end of the process count as its death.

        What it forked may hold the pipe open for a while after it died.
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
                    f"stopped the evaluator: no message for {timeout_s:.0f} s", hint=f"read {self.log_path}"
                )

    def _died(self) -> EvaluatorDied:
        self.stop()
        return EvaluatorDied(
            f"the evaluator exited unexpectedly ({_how(self._process.returncode)})",
            hint=f"read {self.log_path}; a retry requests only the missing answers",
        )


def child_environment(
    environment: Mapping[str, str], work_dir: Path, *, offline: bool, key: str = ""
) -> dict[str, str]:
    """Return the child's environment: caches below `work_dir`, no GPU, no proxy to this machine, no key but one.

    Args:
        environment: the user's, whose word on caches and the hub stands.
        work_dir: where the caches go.
        offline: no hub, unless the user says otherwise.
        key: name of the variable with the endpoint's key.
    """
    caches = {name: str(work_dir / "cache" / folder) for name, folder in CACHE_VARIABLES.items()}
    result = caches | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    result |= without_secrets(environment, keep=(key, *HUB_TOKENS))
    no_proxy = ",".join(filter(None, [environment.get("NO_PROXY") or environment.get("no_proxy"), *LOOPBACK]))
    result |= {
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # a `datasets` folder where the user stands is not the package
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
    }
    result.pop("TQDM_DISABLE", None)  # EvalScope's own progress bar fails under it
    root = Path(eval_jobs.__file__).parent.parent
    if root.name != "site-packages":  # a source tree: the child's interpreter may not know it
        result["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environment.get("PYTHONPATH")]))
    return result


# --- private


def _open_log(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise storage_error(path.parent, error) from error


def _how(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"
