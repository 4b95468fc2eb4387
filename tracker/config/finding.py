"""Tables of tracker.toml: which run is watched, and how its checkpoints are found."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.queue_types import Backlog
from eval_jobs.records.program import Program
from tracker.config.programs import Options, anchored_options, checked_name, program_of
from tracker.config.section import Section
from tracker.domain.checkpoints.buckets import SCHEME, S3Access, parse_location
from tracker.domain.checkpoints.completeness import WatchOptions


class RunSection(Section):
    """Which training run is watched."""

    name: str = Field(min_length=1, description="Name of the run in tables, reports and MLflow.")
    output_dir: str = Field(
        description="Folder that the trainer writes its checkpoints into, or s3://bucket/prefix. It may not exist yet."
    )
    state_dir: Path = Field(
        default=Path(".tracker"), description="Where pins, results, logs and the default MLflow store are kept."
    )
    source: str = Field(
        default="",
        description="Checkpoint source of another package that finds checkpoints at `output_dir` (docs/extending.md). "
        "Empty: a folder or a bucket, as `output_dir` says.",
    )
    options: Options = Field(default={}, description="Settings of that source.")

    @field_validator("source")
    @classmethod
    def _may_be_a_name(cls, value: str) -> str:
        return checked_name(value) if value else value

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
    def is_bucket(self) -> bool:
        """Whether checkpoints are uploaded to S3, and do not lie in a folder."""
        return self.output_dir.startswith(SCHEME) and not self.source

    def to_program(self) -> Program | None:
        """Return which source of another package finds the checkpoints; None: none does."""
        return program_of(self.source, self.options) if self.source else None

    def anchored(self, folder: Path) -> RunSection:
        """Return it with relative paths counted from `folder`."""
        output_dir = self.output_dir if "://" in self.output_dir else str(folder / self.output_dir)
        options = anchored_options(self.options, folder)
        changed = {"output_dir": output_dir, "state_dir": folder / self.state_dir, "options": options}
        return self.model_copy(update=changed)


class S3Section(Section):
    """How a bucket is reached. Keys stand elsewhere: in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws."""

    endpoint_url: str = Field(
        default="",
        description="Server that speaks S3, such as https://minio:9000; default: AWS_ENDPOINT_URL, else AWS.",
    )
    region: str = Field(default="", description="Region of the bucket; default: AWS_REGION or the profile's.")
    anonymous: bool = Field(default=False, description="Read a public bucket without any key.")

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
        return S3Access(endpoint_url=self.endpoint_url, region=self.region, anonymous=self.anonymous)


class WatchSection(Section):
    """How checkpoints are found, and in which order they are evaluated."""

    pattern: str = Field(
        default="checkpoint-*", description="Folder names of checkpoints; the number at the end is the step."
    )
    settle_s: float = Field(
        default=3.0,
        gt=0,
        description="How long files must stay unchanged, in seconds. Where trainer_state.json proves the end and file "
        "events told of its writing, a tenth of a second is enough.",
    )
    rescan_s: float = Field(
        default=10.0, gt=0, description="Seconds between two looks at the disk when no file event comes."
    )
    polling: bool = Field(
        default=False, description="Do not rely on file events: needed on network file systems, which have none."
    )
    backlog: Backlog = Field(
        default=Backlog.NEWEST,
        description="Which waiting checkpoint is next: `newest` (the oldest are skipped when more than `max_waiting` "
        "wait), `all` (newest first, none is skipped) or `oldest`. `tracker watch --until-idle` takes `oldest`.",
    )
    max_waiting: int = Field(
        default=20,
        gt=0,
        description="Checkpoints of a run that may wait while a newer one is evaluated; only for `newest`.",
    )
    allow_pickle: bool = Field(
        default=False,
        description="Unpickle weights (`.bin`, or a DeepSpeed state with classes of its own), which can run code.",
    )
    config_from: Path | None = Field(
        default=None,
        description="Folder with the config.json and tokenizer of checkpoints that hold none, as FSDP's sharded ones.",
    )
    python: str = Field(
        default="",
        description="Interpreter with torch (and DeepSpeed) that puts sharded checkpoints together; default: the "
        "running one.",
    )

    def to_options(self) -> WatchOptions:
        """Return the record for the checkpoint source."""
        return WatchOptions(
            pattern=self.pattern,
            settle_s=self.settle_s,
            rescan_s=self.rescan_s,
            polling=self.polling,
            allow_pickle=self.allow_pickle,
            config_from="" if self.config_from is None else str(self.config_from),
            python=self.python,
        )
