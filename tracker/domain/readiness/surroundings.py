"""Facts about checkpoint folders, hubs and disks -> findings. Pure."""

from collections.abc import Mapping

from eval_jobs.records.preflight import HubState
from tracker.domain.checkpoints.listing import EXPORT_HINT, single_files, single_files_text
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.readiness.finding import Finding, error, ok, warning
from tracker.domain.records.display import bytes_text, names_text

CHECKPOINTS, DISK = "checkpoints", "disk"
FEW_BYTES = 2 << 30
"""Below this free space, results and logs may soon not fit."""


def problem_finding(folder: str, problem: NotYet | Rejected, *, is_wanted: bool) -> Finding:
    """Return the finding about a checkpoint that is not complete; `is_wanted`: it was named to be evaluated."""
    what = "cannot be evaluated yet" if problem.is_elsewhere else "is not complete"
    message = f"{folder} {what}: {problem.reason}"
    if is_wanted:
        return error(CHECKPOINTS, message, problem.hint)
    return warning(CHECKPOINTS, message, problem.hint)


def empty_finding(folder: str, pattern: str, is_folder: Mapping[str, bool] | None) -> Finding:
    """Return the finding about an output folder without checkpoints.

    `is_folder` has the names of what is in it; None: it does not exist.
    """
    hint = "start the training, or correct run.output_dir"
    if is_folder is None:
        return warning(CHECKPOINTS, f"{folder} does not exist yet", hint)
    models = single_files(is_folder)
    if models:
        return warning(CHECKPOINTS, single_files_text(folder, models), EXPORT_HINT)
    others = sorted(name for name in is_folder if is_folder[name])
    if not others:
        return warning(CHECKPOINTS, f"no checkpoint in {folder} yet", hint)
    what = f"matches {pattern}" if pattern else "has the name of a checkpoint"
    message = f"no folder in {folder} {what}; it contains {names_text(others)}"
    hint = "set watch.pattern to the names of the checkpoint folders, or correct run.output_dir"
    return warning(CHECKPOINTS, message, hint)


def hub_finding(subject: str, state: HubState) -> Finding:
    """Return where the data of a benchmark without local files comes from."""
    if state.is_cached:
        return ok(subject, f"{state.dataset} is in the cache")
    if state.is_reachable:
        return ok(subject, f"{state.dataset} is downloaded from {state.url} before the first evaluation")
    return error(
        subject,
        f"{state.dataset} is not in the cache, and {state.url} does not respond",
        "set `data` to a local copy, set suite.dataset_hub to another hub, or check the network and proxy settings",
    )


def disk_finding(folder: str, *, free_bytes: int, copy_bytes: int) -> Finding:
    """Return the finding about the state folder; `copy_bytes`: size of a pin that is no hard link, else 0."""
    free = f"{folder}: {bytes_text(free_bytes)} free"
    if free_bytes < copy_bytes:
        return error(
            DISK,
            f"{free}, but a copy of a checkpoint needs {bytes_text(copy_bytes)}",
            "set run.state_dir to a folder on the file system of the checkpoints, or free space",
        )
    if free_bytes < FEW_BYTES:
        return warning(DISK, free, "free space, or set run.state_dir to another disk")
    return ok(DISK, f"{free}; pins are copies" if copy_bytes else f"{free}; pins are hard links")
