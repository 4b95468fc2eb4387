"""Tables of tracker.toml: what counts as a finding, and where results are kept."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from tracker.config.section import Section, without_key
from tracker.domain.records.types import USUAL_CHECKPOINTS, LatencyPolicy, Phase, Pinned, Policy


class PolicySection(Section):
    """What counts as a finding."""

    alpha: float = Field(default=0.05, gt=0, lt=1, description="Chance of any false alarm over a whole healthy run.")
    min_effect: float = Field(default=0.01, ge=0, lt=1, description="Smallest loss that is called a regression.")
    subset_min_effect: float = Field(
        default=0.05, ge=0, lt=1, description="Smallest loss of a single subset that is called a regression."
    )
    equivalence_margin: float = Field(
        default=0.01, gt=0, lt=1, description="Two scores shown to differ by less than this are called equivalent."
    )
    min_coverage: float = Field(
        default=0.95, gt=0, le=1, description="Smallest share of scored samples; below it the verdict is `missing`."
    )
    planned_checkpoints: int | None = Field(
        default=None,
        gt=0,
        description="Checkpoints that the run is expected to write; `alpha` is divided over them. Default: unknown, "
        "half of `alpha` for the first 100, a quarter for the next 200, and so on.",
    )
    baseline: str = Field(
        default="",
        description="`RUN@STEP` of an evaluated checkpoint that every other one is compared with as well: the base "
        "model, or the best of another run.",
    )

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
        plain = self.model_dump(exclude={"baseline"})
        return Policy(**plain, pinned=pinned, phases=phases, latency=latency, chance=chance)


class PhaseSection(Section):
    """A stretch of training with its own data: the history of its jitter starts anew there."""

    name: str = Field(min_length=1, description="Name of the phase in reports.")
    from_step: int = Field(ge=0, description="First step of the phase.")


class TrackingSection(Section):
    """Where MLflow keeps the results."""

    enabled: bool = Field(default=True, description="false: write nothing to MLflow.")
    uri: str = Field(default="", description="MLflow tracking URI; default: a SQLite store in `run.state_dir`.")
    experiment: str = Field(default="", description="MLflow experiment; default: the run's name.")
    run_id: str = Field(
        default="", description="The trainer's own MLflow run, to write into it; default: found by its output folder."
    )
    username: str = Field(
        default="", description="User of the MLflow server, with `password_file`; default: MLFLOW_TRACKING_USERNAME."
    )
    password_file: Path | None = Field(
        default=None, description="File whose first line is that user's password; default: MLFLOW_TRACKING_PASSWORD."
    )

    aliases: bool = Field(
        default=True,
        description="Register the best checkpoints in MLflow's model registry, under the run's name: the aliases "
        "`champion` and `best-BENCHMARK` move to the best block of checkpoints. false: register nothing.",
    )

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
