"""The table of tracker.toml that says where plans and results are kept."""

from __future__ import annotations

from pathlib import Path

from pydantic import field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue.address import checked_database_url
from tracker.config.section import Section


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
