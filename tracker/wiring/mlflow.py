"""Part of the composition root: the address of MLflow, and the reads and writes that bypass the outbox."""

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
    from tracker.domain.compare.sample_pages import SamplePage


@dataclass(frozen=True)
class Mlflow:
    """MLflow, as configured in [tracking]. It is not contacted before the first use."""

    config: Config
    runs: Callable[[], Sequence[str]]
    """Returns the runs in the history."""

    @cached_property
    def uri(self) -> str:
        """Address of the MLflow store; reading it also logs this process in, if a user is set.

        Raises:
            ConfigError: the password file cannot be read or is empty.
        """
        tracking = self.config.tracking
        if tracking.username:
            password = read_secret(variable="", file=tracking.password_file, setting="tracking.password")
            from tracker.adapters.mlflow import log_in

            log_in(tracking.username, password)
        return tracking.uri or f"sqlite:///{self.config.run.state_dir / 'mlflow.db'}"

    @cached_property
    def settings(self) -> TrackingSettings:
        """Settings of the MLflow adapters."""
        from tracker.adapters.mlflow.runs import TrackingSettings

        return TrackingSettings(
            uri=self.uri,
            experiment=self.config.tracking.experiment or self.config.run.name,
            run_id=self.config.tracking.run_id,
            output_dir=self.config.run.output_dir,
            has_aliases=self.config.tracking.aliases,
        )

    def registered(self, reference: str) -> RegisteredCheckpoint:
        """Return the checkpoint that `models:/NAME@ALIAS` or `models:/NAME/VERSION` refers to in MLflow.

        Raises:
            ConfigError: there is no such version, or it was not made from a tracked checkpoint.
            TrackingUnreachable: MLflow does not respond.
        """
        from tracker.adapters.mlflow.registry import registered_checkpoint

        return registered_checkpoint(self.settings, reference, self.runs())

    def write_samples(self, pages: Sequence[SamplePage]) -> Iterator[str]:
        """Write samples of two checkpoints to MLflow for side-by-side comparison; yield the link of each written page.

        Raises:
            TrackingUnreachable, StoreError: MLflow does not respond, or rejects the request.
            ConfigError: the experiment was deleted.
        """
        from tracker.adapters.mlflow.samples import write_pages

        return write_pages(self.settings, pages)
