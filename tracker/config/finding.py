"""Tables of tracker.toml: which run is watched, and how its checkpoints are found."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue_types import Backlog
from eval_jobs.records.program import Program
from tracker.config.programs import Options, anchored_options, checked_name, program_of
from tracker.config.section import Section, record_of
from tracker.domain.checkpoints.buckets import SCHEME, S3Access, parse_location
from tracker.domain.checkpoints.watching import WatchOptions, WatchSettings


class RunSection(Section):
    """Which training run is watched."""

    name: str = Field(min_length=1)
    """Name of the run in tables, reports and MLflow."""
    output_dir: str
    """Folder that the trainer writes its checkpoints into, or s3://bucket/prefix. It may not exist yet."""
    state_dir: Path = Path(".tracker")
    """Where pins, results, logs and the default MLflow store are kept."""
    source: str = ""
    """Checkpoint source of another package that finds checkpoints at `output_dir` (docs/extending.md). Empty: a folder
    or a bucket, as `output_dir` says."""
    options: Options = Field(default={})
    """Settings of that source."""

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
            raise ValueError("options are for a source of another package: name it with source")
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
    def is_bucket(self) -> bool:
        """Whether checkpoints are uploaded to S3, and do not lie in a folder."""
        return self.output_dir.startswith(SCHEME) and not self.source

    def to_program(self) -> Program | None:
        """Return which source of another package finds the checkpoints; None: none does."""
        if self.source:
            return program_of(self.source, self.options)
        return None

    def anchored(self, folder: Path) -> RunSection:
        """Return it with relative paths counted from `folder`."""
        output_dir = self.output_dir if "://" in self.output_dir else str(folder / self.output_dir)
        options = anchored_options(self.options, folder)
        changed = {"output_dir": output_dir, "state_dir": folder / self.state_dir, "options": options}
        return self.model_copy(update=changed)


class S3Section(Section, S3Access):
    """How a bucket is reached. Keys stand elsewhere: in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws."""

    @field_validator("endpoint_url")
    @classmethod
    def _is_an_address_without_keys(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("an endpoint begins with http:// or https://")
        if "@" in value:
            raise ValueError("keys do not belong here: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        return value

    def to_access(self) -> S3Access:
        """Return the record for the client."""
        return record_of(S3Access, self)


class WatchSection(Section, WatchSettings):
    """How checkpoints are found, and in which order they are evaluated."""

    leading = ("pattern", "settle_s", "rescan_s", "polling", "backlog", "max_waiting", "allow_pickle", "config_from")
    backlog: Backlog = Backlog.NEWEST
    """Which waiting checkpoint is next: `newest` (the oldest are skipped when more than `max_waiting` wait), `all`
    (newest first, none is skipped) or `oldest`. `tracker watch --until-idle` takes `oldest`."""
    max_waiting: int = Field(default=20, gt=0)
    """Checkpoints of a run that may wait while a newer one is evaluated; only for `newest`."""
    config_from: Path | None = None
    """Folder with the config.json and tokenizer of checkpoints that hold none, as FSDP's sharded ones."""

    def to_options(self) -> WatchOptions:
        """Return the record for the checkpoint source."""
        config_from = "" if self.config_from is None else str(self.config_from)
        return record_of(WatchOptions, self, config_from=config_from)
