"""Part of the composition root: what is measured at every checkpoint, and what its latency is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eval_jobs.types import Checkpoint, Suite
from tracker.config import FIRST, Config
from tracker.wiring.checkpoints import pin_at
from tracker.wiring.programs import serve_of

if TYPE_CHECKING:
    from tracker.app.world import MeasurementPlan


def measurement_of(config: Config, suite: Suite) -> MeasurementPlan:
    """Return what is measured at every checkpoint; a latency reference that is a folder is pinned.

    Raises:
        CheckpointError: that folder is not a complete checkpoint.
        DiskFull, StoreError: it cannot be pinned.
    """
    from tracker.app.world import MeasurementPlan

    return MeasurementPlan(
        suites=(suite,),
        serve=serve_of(config),
        loads=config.probe.to_loads(),
        reference=_reference(config),
        screening=config.suite.screen.to_screening(),
    )


# --- private


def _reference(config: Config) -> Checkpoint | Literal["first"] | None:
    setting = config.probe.reference
    if not setting or not config.probe.enabled:
        return None
    if setting == FIRST:
        return "first"
    # Separate from the pins of the run, which are evaluated after a restart.
    return pin_at(config, setting, config.run.name, config.run.state_dir / "reference")
