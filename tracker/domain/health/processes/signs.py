"""What processes show, as trouble of a training. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracker.domain.health.processes.capture import capture_of
from tracker.domain.health.processes.hangs import Hang, HangName, Moment
from tracker.domain.health.processes.pace import Pace
from tracker.domain.records.display import duration_text
from tracker.domain.records.training import Severity, TroubleClass, TroubleSource

_HANGS = "The training hangs"
_FIRST_ORDER = 1_000
"""After all rules for lines: an error in the log explains a dead process."""
TITLES = {
    **dict.fromkeys(map(str, HangName), _HANGS),
    "killed_for_memory": "The kernel ended the training: memory ran out",
    "rank_died": "A rank died",
    "failed": "The training failed",
    "gone": "The training's processes are gone",
    "memory_leak": "Memory of the training grows to its limit",
    "descriptor_leak": "Open files of the training grow to their limit",
}
"""Classes of what processes show, most telling first."""
TERMINAL = frozenset(("killed_for_memory", "rank_died", "failed", "gone"))
_RESOURCES = frozenset(("memory_leak", "descriptor_leak"))


@dataclass(frozen=True, kw_only=True)
class ProcessSign:
    """Trouble that processes show."""

    trouble: TroubleClass
    text: str
    ranks: tuple[int, ...] = ()
    capture: str = ""
    """States and stacks of all ranks; of bounded length."""


def process_trouble(name: str, hint: str, severity: Severity = Severity.ALERT) -> TroubleClass:
    """Return a class of trouble by its name in `TITLES`."""
    return TroubleClass(
        name=name,
        severity=severity,
        title=TITLES[name],
        source=TroubleSource.RESOURCE if name in _RESOURCES else TroubleSource.PROCESS,
        is_terminal=name in TERMINAL,
        hint=hint,
        order=_FIRST_ORDER + list(TITLES).index(name),
    )


def sign_of_hang(hang: Hang, pace: Pace, now_s: float, moments: Sequence[Moment]) -> ProcessSign:
    """Return why a training makes no progress, with how long it has made none."""
    quiet = f"no progress for {duration_text(pace.quiet_s(now_s))}"
    if pace.usual_s:
        quiet += f" (usually a step every {duration_text(pace.usual_s)})"
    return ProcessSign(
        trouble=process_trouble(hang.name, hang.hint),
        text=f"{quiet}: {hang.text}",
        ranks=hang.ranks,
        capture=capture_of(moments),
    )
