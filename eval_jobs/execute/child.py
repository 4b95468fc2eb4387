"""What processes have in common that another one starts: database, log, and that they end with that process."""

import faulthandler
import logging
import os
import re
import threading
import time
from pathlib import Path

from eval_jobs.execute.interrupts import Interrupts
from eval_jobs.host.secrets import held_secrets, masked, register_secret
from eval_jobs.queue.address import PASSWORD_VARIABLE, QUEUE_URL_VARIABLE

log = logging.getLogger(__name__)

PARENT_CHECK_S = 1.0
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
REPLACEMENT = "\ufffd"


def database_from_environment() -> tuple[str, str]:
    """Return URL and password of the database, and remove both from the environment of child processes."""
    return os.environ.pop(QUEUE_URL_VARIABLE, ""), register_secret(os.environ.pop(PASSWORD_VARIABLE, ""))


def log_to(path: Path) -> None:
    """Write all log lines to a file, without secrets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    formatter = MaskingFormatter("%(asctime)sZ %(levelname)s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    file = path.open("a", encoding="utf-8")
    handler = logging.StreamHandler(file)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    faulthandler.enable(file)  # distinguishes a crash from a kill from outside


def stop_with_parent(parent: int, interrupts: Interrupts) -> None:
    """Stop when `parent` is gone. Its ID is an argument, because it may exit while this process is starting."""

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(PARENT_CHECK_S)
        log.warning("stopping: parent process %d has exited", parent)
        interrupts.stop_from_thread()

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


class MaskingFormatter(logging.Formatter):
    """A formatter that replaces every secret of this process with `***`: an error may repeat a key that was sent.

    Control characters become U+FFFD, because logs are read in terminals.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with its traceback if there is one."""
        return _CONTROLS.sub(REPLACEMENT, masked(super().format(record), held_secrets(os.environ)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in the base class
        """Return the message as one line: it must not look like two entries."""
        return " ".join(super().formatMessage(record).splitlines())
