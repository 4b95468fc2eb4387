"""A part of the composition root: MLflow, where it is, and what is asked of it and written to it beside the outbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tracker.adapters.secrets import read_secret
from tracker.config import Config

if TYPE_CHECKING:
    from tracker.adapters.mlflow.registry import RegisteredCheckpoint
    from tracker.adapters.mlflow.runs import TrackingSettings
    from tracker.adapters.mlflow.samples import WrittenPage
    from tracker.domain.compare.sample_pages import SamplePage


@dataclass(frozen=True)
class Mlflow:
    """MLflow, as [tracking] sets it. Nobody is asked before something is wanted."""

    config: Config
    runs: Callable[[], Sequence[str]]
    """Runs that the history knows."""

    @cached_property
    def uri(self) -> str:
        """Where MLflow keeps the results; whoever has the address asks as the user that is set for it.

        Raises:
            ConfigError: the file that is named has no password.
        """
        tracking = self.config.tracking
        if tracking.username:
            password = read_secret(variable="", file=tracking.password_file, setting="tracking.password")
            from tracker.adapters.mlflow.environment import log_in

            log_in(tracking.username, password)
        return tracking.uri or f"sqlite:///{self.config.run.state_dir / 'mlflow.db'}"

    @cached_property
    def settings(self) -> TrackingSettings:
        """What the adapters need to know."""
        from tracker.adapters.mlflow.runs import TrackingSettings

        return TrackingSettings(
            uri=self.uri,
            experiment=self.config.tracking.experiment or self.config.run.name,
            run_name=self.config.run.name,
            run_id=self.config.tracking.run_id,
            output_dir=self.config.run.output_dir,
            has_aliases=self.config.tracking.aliases,
        )

    def registered(self, reference: str) -> RegisteredCheckpoint:
        """Return the checkpoint that `models:/NAME@ALIAS` or `models:/NAME/VERSION` leads to in MLflow.

        Raises:
            ConfigError: there is no such version, or it was made from no checkpoint of a tracker.
            TrackingUnreachable: MLflow does not answer.
        """
        from tracker.adapters.mlflow.registry import registered_checkpoint

        return registered_checkpoint(self.settings, reference, self.runs())

    def write_samples(self, pages: Sequence[SamplePage]) -> Iterator[WrittenPage]:
        """Write samples of two checkpoints to MLflow, to be looked at side by side; yield each page when it is there.

        Raises:
            TrackingUnreachable, StoreError: MLflow does not answer, or refuses.
            ConfigError: the experiment was deleted.
        """
        from tracker.adapters.mlflow.samples import write_pages

        return write_pages(self.settings, pages)
