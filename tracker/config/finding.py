"""Tables of tracker.toml: which run is watched, and how its checkpoints are found."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, ValidationInfo, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue_types import Backlog
from eval_jobs.records.program import Program
from tracker.config.programs import Options, checked_name, program_of
from tracker.config.section import AnchoredPath, Section, anchored, record_of
from tracker.domain.checkpoints.buckets import SCHEME, S3Access, parse_location
from tracker.domain.checkpoints.watching import WatchOptions, WatchSettings

MAX_NAME_CHARS = 200
"""File systems allow 255 bytes."""


class RunSection(Section):
    """The training run to watch."""

    name: str = Field(min_length=1)
    """Name of the run in tables, reports and MLflow."""
    output_dir: str
    """Folder that the trainer writes checkpoints to, or s3://bucket/prefix. It does not need to exist yet."""
    state_dir: AnchoredPath = Field(default=Path(".tracker"), validate_default=True)
    """Folder for pins, results, logs and the default MLflow store."""
    source: str = ""
    """Checkpoint source from a plugin package. Empty: the built-in source for a folder or a bucket."""
    options: Options = Field(default={})
    """Settings of the plugin source."""

    @field_validator("name")
    @classmethod
    def _is_a_name_for_mlflow(cls, value: str) -> str:
        if value.startswith("."):
            raise ValueError("a name cannot begin with a dot, because MLflow rejects it")
        return value

    @field_validator("output_dir")
    @classmethod
    def _may_be_relative(cls, value: str, info: ValidationInfo) -> str:
        if "://" in value:
            return value
        return str(anchored(value, info))

    @field_validator("source")
    @classmethod
    def _may_be_a_name(cls, value: str) -> str:
        if value:
            return checked_name(value)
        return value

    @model_validator(mode="after")
    def _is_a_folder_or_a_bucket(self) -> RunSection:
        if "://" in self.output_dir and not self.source:
            try:
                parse_location(self.output_dir)
            except ConfigError as error:
                raise ValueError(error.hint) from error
        if self.options and not self.source:
            raise ValueError("options require a plugin source: set source, or remove options")
        return self

    @property
    def work_dir(self) -> Path:
        """Folder of the workers of this machine: logs, half-done evaluations, engine caches."""
        return self.state_dir / "work"

    @property
    def pins_dir(self) -> Path:
        """Folder of our own holds on checkpoints."""
        return self.state_dir / "pins"

    @property
    def samples_dir(self) -> Path:
        """Folder of what was asked and answered."""
        return self.state_dir / "samples"

    @property
    def guard_dir(self) -> Path:
        """Folder of the output of commands that `tracker guard` ran for this run, one of several in a state folder."""
        name = quote(self.name, safe=" ")
        if len(name) > MAX_NAME_CHARS:
            name = sha256(self.name.encode()).hexdigest()
        return self.state_dir / "guard" / name

    @property
    def is_bucket(self) -> bool:
        """Whether checkpoints are uploaded to S3, and do not lie in a folder."""
        return self.output_dir.startswith(SCHEME) and not self.source

    def to_program(self) -> Program | None:
        """Return which source of another package finds the checkpoints; None: none does."""
        if self.source:
            return program_of(self.source, self.options)
        return None


class S3Section(Section, S3Access):
    """Access to an S3 bucket. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from ~/.aws."""

    @field_validator("endpoint_url")
    @classmethod
    def _is_an_address_without_keys(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("an endpoint must start with http:// or https://")
        if "@" in value:
            raise ValueError("remove the credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
        return value

    def to_access(self) -> S3Access:
        """Return the record for the client."""
        return record_of(S3Access, self)


class WatchSection(Section, WatchSettings):
    """How checkpoints are found, and the order of evaluation."""

    leading = ("pattern", "settle_s", "rescan_s", "polling", "backlog", "max_waiting", "allow_pickle", "config_from")
    backlog: Backlog = Backlog.NEWEST
    """Order of pending checkpoints: `newest` (newest first; skips the oldest beyond `max_waiting`), `all`
    (newest first, skips none) or `oldest` (skips none). `tracker watch --until-idle` always uses `oldest`."""
    max_waiting: int = Field(default=20, gt=0)
    """Maximum number of pending checkpoints per run with backlog = "newest"."""
    reask_wait_s: float = Field(default=600.0, ge=0)
    """Seconds before a change of settings asks evaluated checkpoints what is missing. 0: `--yes`, `--until-idle`."""
    config_from: AnchoredPath | None = None
    """Folder with config.json and tokenizer for checkpoints that lack them, such as FSDP sharded states."""

    @field_validator("convert")
    @classmethod
    def _names_both_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not all(any(place in part for part in value) for place in ("{source}", "{target}")):
            raise ValueError('must contain "{source}" and "{target}"')
        return value

    def to_options(self) -> WatchOptions:
        """Return the record for the checkpoint source."""
        config_from = "" if self.config_from is None else str(self.config_from)
        return record_of(WatchOptions, self, config_from=config_from)
