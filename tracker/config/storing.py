"""Tables of tracker.toml: where plans and results are kept, and how much of our own."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue.address import checked_database_url
from tracker.config.section import Section
from tracker.domain.best.retention import KeepPolicy


class StoreSection(Section):
    """Where plans, results and what waits for MLflow are kept."""

    database: str = ""
    """`postgresql://user@host/name`, without a password; default: a SQLite file in `run.state_dir`, which workers on
    this machine share."""
    password_env: str = ""
    """Environment variable that holds the password of the database."""
    password_file: Path | None = None
    """File whose first line is the password of the database."""

    @field_validator("database")
    @classmethod
    def _is_usable(cls, value: str) -> str:
        try:
            return checked_database_url(value) if value else ""
        except ConfigError as error:
            raise ValueError(f"{error.message} ({error.hint})") from error

    @model_validator(mode="after")
    def _has_one_password_for_a_server(self) -> StoreSection:
        if self.password_env and self.password_file is not None:
            raise ValueError("set password_env or password_file, not both")
        if (self.password_env or self.password_file is not None) and not self.database.startswith("postgresql"):
            raise ValueError("a password is for a PostgreSQL database: name it with store.database")
        return self


class KeepSection(Section):
    """What is kept of every run on our side. The trainer's files are never touched, and scores are kept for ever.

    Beside the last ones, the first checkpoint, `policy.baseline`, the best one of every benchmark and those that are
    not evaluated yet are always kept. `tracker gc --dry-run` shows what would go.
    """

    pins: int = Field(default=8, ge=0)
    """Checkpoints of a run whose weights are kept: the newest ones, and always the first, the best of every benchmark,
    `policy.baseline` and those that are not evaluated yet. A pin takes space once the trainer has deleted its own copy.
    0: every one."""
    samples: int = Field(default=0, ge=0)
    """Checkpoints of a run whose answers are kept as text, chosen in the same way; without them `tracker compare` and
    the report cannot show what the model said. 0: every one."""

    def to_keep(self) -> KeepPolicy:
        """Return the record for the use case."""
        return KeepPolicy(pins=self.pins or None, samples=self.samples or None)
