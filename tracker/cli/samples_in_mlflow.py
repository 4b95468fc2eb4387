"""The end of `tracker compare A B --mlflow`: pages of samples are written, and their links told line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eval_jobs.errors import TrackingUnreachable
from tracker.domain.compare.sample_pages import ChosenPages, SampleFilter, SamplePage
from tracker.domain.records.display import names_text, one_line

if TYPE_CHECKING:
    from tracker.wiring.project import Project

UI_ADDRESS = "http://127.0.0.1:5000"
"""Of `tracker ui`, unless it is told another port."""


def pages_in_mlflow(project: Project, chosen: ChosenPages) -> Iterator[str]:
    """Write the pages to MLflow, and yield what to tell a person.

    Raises:
        TrackingUnreachable, StoreError, ConfigError: as `Mlflow.write_samples`.
    """
    count = sum(len(page.before.rows) + len(page.after.rows) for page in chosen.pages)
    yield f"\nwriting what MLflow does not have yet of {count} samples ..."
    is_server = project.mlflow.uri.startswith("http")
    server = project.mlflow.uri.rstrip("/") if is_server else UI_ADDRESS
    yield "samples side by side in MLflow:" if is_server else "samples side by side in MLflow, while `tracker ui` runs:"
    project.make_state_dir()
    try:
        for page, written in zip(chosen.pages, project.mlflow.write_samples(chosen.pages), strict=True):
            yield f"  {_words(page)}\n    {server}/{written.link}"
    except TrackingUnreachable as error:
        hint = "start MLflow or correct [tracking] of tracker.toml, then give the command again: it goes on from here"
        raise TrackingUnreachable(error.message, hint=hint) from error
    if chosen.without_answers:
        steps = names_text([f"step {step}" for step in chosen.without_answers])
        yield f"answers of {steps} are no longer kept ([keep] of tracker.toml): the pages show scores alone"
    if chosen.left_out:
        yield f"not written, because others changed more: {names_text(chosen.left_out)}"


# --- private


def _words(page: SamplePage) -> str:
    shown, name = len(page.after.rows), one_line(page.benchmark)
    if page.choice is SampleFilter.CHANGED:
        which = "all that" if shown == page.chosen_from else f"{shown} of the {page.chosen_from} that"
        return f"{name}: {which} changed"
    if shown == page.chosen_from:
        return f"{name}: all {shown} questions"
    return f"{name}: {shown} of {page.chosen_from} questions, the same for every two checkpoints"
