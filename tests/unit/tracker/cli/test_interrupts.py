"""An interrupt that a library swallows is raised again."""

import subprocess
import sys

SWALLOWED = """
import os, signal
from tracker.cli import interrupts
signal.signal(signal.{name}, signal.SIG_DFL)
interrupts.install()
interrupts.check()
try:
    os.kill(os.getpid(), signal.{name})
except BaseException:
    pass
try:
    interrupts.check()
except KeyboardInterrupt:
    print("raised again")
"""


def test_a_swallowed_interrupt_is_raised_again_by_the_next_check() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        code = SWALLOWED.format(name=name)
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert result.stdout == "raised again\n"


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    code = (
        "import os, signal\n"
        "from tracker.cli import interrupts\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "interrupts.install()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\n"
        "interrupts.check()\n"
        "print('still here')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "still here\n"
