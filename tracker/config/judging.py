"""Tables of tracker.toml: what counts as a finding, and where results are kept."""

from __future__ import annotations

from pydantic import ValidationInfo, field_validator, model_validator

from tracker.config.section import AnchoredPath, Section, anchored, record_of, without_key
from tracker.domain.records.policy import LatencyPolicy, Phase, Pinned, Policy, PolicySettings

_SQLITE = "sqlite:///"


class PolicySection(Section, PolicySettings):
    """Error rates and thresholds of later verdicts."""

    baseline: str = ""
    """`RUN@STEP` of an evaluated checkpoint, such as the base model or the best checkpoint of another run. Every
    checkpoint is also compared with it."""

    @field_validator("baseline")
    @classmethod
    def _baseline_is_a_checkpoint(cls, value: str) -> str:
        run, _, step = value.rpartition("@")
        if value and not (run and step.isdecimal()):
            raise ValueError("expected RUN@STEP, such as base@0")
        return value

    def to_policy(self, phases: tuple[Phase, ...], chance: dict[str, float]) -> Policy:
        """Return the record for the judge."""
        run, _, step = self.baseline.rpartition("@")
        pinned = Pinned(run_id=run, step=int(step)) if run else None
        latency = LatencyPolicy(
            alpha=self.alpha, planned_checkpoints=self.planned_checkpoints or LatencyPolicy.planned_checkpoints
        )
        return record_of(Policy, self, pinned=pinned, phases=phases, latency=latency, chance=chance)


class PhaseSection(Section, Phase):
    """A phase of training with its own data. The noise estimate restarts at its first step."""


class TrackingSection(Section):
    """The MLflow server or store for results."""

    enabled: bool = True
    """Write results to MLflow."""
    uri: str = ""
    """MLflow tracking URI. Default: a SQLite store in `run.state_dir`."""
    experiment: str = ""
    """MLflow experiment for new runs. Default: the run's name."""
    run_id: str = ""
    """ID of the trainer's MLflow run to write to. Default: the run of earlier results, else
    the trainer's run with the same output folder and training loss."""
    username: str = ""
    """User name for the MLflow server, with `password_file`. Default: MLFLOW_TRACKING_USERNAME."""
    password_file: AnchoredPath | None = None
    """File with that user's password in its first line. Default: MLFLOW_TRACKING_PASSWORD."""
    aliases: bool = True
    """Register the best checkpoints in MLflow's model registry under the run's name, with the aliases
    `champion` and `best-BENCHMARK`."""

    @field_validator("uri")
    @classmethod
    def _address_holds_no_key(cls, value: str, info: ValidationInfo) -> str:
        if value.startswith(_SQLITE):
            return f"{_SQLITE}{anchored(value.removeprefix(_SQLITE), info)}"
        return without_key(
            value,
            instead="set tracking.username and tracking.password_file, or MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD (for PostgreSQL: PGPASSWORD)",
        )

    @model_validator(mode="after")
    def _user_and_password_are_for_a_server(self) -> TrackingSection:
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("username and password_file must be set together")
        if self.username and not self.uri.startswith("http"):
            raise ValueError("username requires an MLflow server: set tracking.uri (http://host:port)")
        return self
