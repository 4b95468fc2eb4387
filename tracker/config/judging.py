"""Tables of tracker.toml: what counts as a finding, and where results are kept."""

from __future__ import annotations

from pathlib import Path

from pydantic import field_validator, model_validator

from tracker.config.section import Section, record_of, without_key
from tracker.domain.records.types import USUAL_CHECKPOINTS, LatencyPolicy, Phase, Pinned, Policy, PolicySettings


class PolicySection(Section, PolicySettings):
    """What counts as a finding."""

    baseline: str = ""
    """`RUN@STEP` of an evaluated checkpoint that every other one is compared with as well: the base model, or the best
    of another run."""

    @field_validator("baseline")
    @classmethod
    def _baseline_is_a_checkpoint(cls, value: str) -> str:
        run, _, step = value.rpartition("@")
        if value and not (run and step.isdecimal()):
            raise ValueError("write RUN@STEP, for example base@0")
        return value

    def to_policy(self, phases: tuple[Phase, ...], chance: dict[str, float]) -> Policy:
        """Return the record for the judge."""
        run, _, step = self.baseline.rpartition("@")
        pinned = Pinned(run_id=run, step=int(step)) if run else None
        latency = LatencyPolicy(alpha=self.alpha, planned_checkpoints=self.planned_checkpoints or USUAL_CHECKPOINTS)
        return record_of(Policy, self, pinned=pinned, phases=phases, latency=latency, chance=chance)


class PhaseSection(Section, Phase):
    """A stretch of training with its own data: the history of its jitter starts anew there."""


class TrackingSection(Section):
    """Where MLflow keeps the results."""

    enabled: bool = True
    """false: write nothing to MLflow."""
    uri: str = ""
    """MLflow tracking URI; default: a SQLite store in `run.state_dir`."""
    experiment: str = ""
    """MLflow experiment; default: the run's name."""
    run_id: str = ""
    """The trainer's own MLflow run, to write into it; default: found by its output folder."""
    username: str = ""
    """User of the MLflow server, with `password_file`; default: MLFLOW_TRACKING_USERNAME."""
    password_file: Path | None = None
    """File whose first line is that user's password; default: MLFLOW_TRACKING_PASSWORD."""

    aliases: bool = True
    """Register the best checkpoints in MLflow's model registry, under the run's name: the aliases `champion` and
    `best-BENCHMARK` move to the best block of checkpoints. false: register nothing."""

    @field_validator("uri")
    @classmethod
    def _address_holds_no_key(cls, value: str) -> str:
        return without_key(
            value,
            instead="name tracking.username and tracking.password_file, or set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD (for PostgreSQL: PGPASSWORD)",
        )

    @model_validator(mode="after")
    def _user_and_password_are_for_a_server(self) -> TrackingSection:
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("username and password_file are set together")
        if self.username and not self.uri.startswith("http"):
            raise ValueError("a user is for an MLflow server: name it with tracking.uri (http://host:port)")
        return self
