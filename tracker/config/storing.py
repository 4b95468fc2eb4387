"""Tables of tracker.toml: where plans and results are kept, and how much of our own."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue.address import checked_database_url
from tracker.config.section import AnchoredPath, Section
from tracker.domain.best.retention import KeepPolicy


class StoreSection(Section):
    """The database for plans, results and pending MLflow writes."""

    database: str = ""
    """`postgresql://user@host/name`, without a password. Default: a SQLite file in `run.state_dir`, shared by
    the workers of this machine."""
    password_env: str = ""
    """Environment variable that contains the database password."""
    password_file: AnchoredPath | None = None
    """File with the database password in its first line."""

    @field_validator("database")
    @classmethod
    def _is_usable(cls, value: str) -> str:
        try:
            return checked_database_url(value) if value else ""
        except ConfigError as error:
            raise ValueError(f"{error.message}: {error.hint}") from error

    @model_validator(mode="after")
    def _has_one_password_for_a_server(self) -> StoreSection:
        if self.password_env and self.password_file is not None:
            raise ValueError("set password_env or password_file, not both")
        if (self.password_env or self.password_file is not None) and not self.database.startswith("postgresql"):
            raise ValueError("a password requires a PostgreSQL database: set store.database")
        return self


class KeepSection(Section):
    """Retention limits per run. The trainer's files are never touched; scores are never deleted.

    What is kept beside the newest ones stands at `pins`. `tracker gc --dry-run` shows what would go.
    """

    pins: int = Field(default=8, ge=0)
    """Number of newest checkpoints whose weights stay pinned. Always pinned: the first, the latency reference, the best
    of the run and of every benchmark, `policy.baseline` and pending ones. 0: no limit."""
    samples: int = Field(default=0, ge=0)
    """Number of checkpoints whose answers are kept as text, selected like `pins`. `tracker compare` and the
    report need them to show answers. 0: no limit."""

    def to_keep(self) -> KeepPolicy:
        """Return the record for the use case."""
        return KeepPolicy(pins=self.pins or None, samples=self.samples or None)
