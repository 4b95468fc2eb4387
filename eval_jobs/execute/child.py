"""What processes have in common that another one starts: database, log, and that they end with that process."""

import faulthandler
import logging
import os
import threading
import time
from pathlib import Path

from eval_jobs.execute.interrupts import Interrupts
from eval_jobs.host.masking import MaskingFormatter
from eval_jobs.host.secrets import register_secret
from eval_jobs.queue.address import PASSWORD_VARIABLE, QUEUE_URL_VARIABLE

log = logging.getLogger(__name__)

PARENT_CHECK_S = 1.0


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
