"""All errors that users can see, with a stable code, an exit code and a hint what to do next.

Each adapter maps the errors of its library to these in one place, with `raise X(...) from exc`.
A regression is not an error: it is a verdict.
"""

from enum import IntEnum
from typing import ClassVar

from eval_jobs.limits import MESSAGE_CHARS, cut


class ExitCode(IntEnum):
    """Exit codes of all commands, listed in docs/reference/errors.md."""

    OK = 0
    """Success: no regression; everything evaluated and delivered; alive."""
    REGRESSION = 1
    """Regression. For `bisect`: the step is found. For `calibrate`: a benchmark is too noisy.

    For `doctor`: a training would stop.
    """
    USAGE = 2
    """Invalid setting, argument or data file, or more evaluations than `max_evaluations`."""
    UNKNOWN = 3
    """Missing or incomparable result, or nothing evaluated; for `gate`, also an inconclusive result."""
    BROKEN = 4
    """Failure of the program, engine, store or network, or a result not delivered. It says nothing about the model."""
    NOT_STARTED = 125
    """Program of `tracker guard` not started: wrong arguments or settings, or it would stop."""
    NOT_EXECUTABLE = 126
    """Program of `tracker guard` not executable."""
    NOT_FOUND = 127
    """Program of `tracker guard` not found."""
    INTERRUPTED = 130
    """Interrupted by Ctrl-C or a signal."""
    UNREAD = 141
    """The reader of the output closed the pipe."""


class TrackerError(Exception):
    """Base of all errors: `message` says what failed and where, `hint` what to do next."""

    code: ClassVar[str] = "E-TRACKER"
    exit_code: ClassVar[ExitCode] = ExitCode.BROKEN
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str, **context: str | int | float) -> None:
        self.message = cut(message, MESSAGE_CHARS)
        super().__init__(self.message)
        self.hint = hint
        self.context = context

    def __str__(self) -> str:
        return f"{self.code}: {self.message} (hint: {self.hint})"


class ConfigError(TrackerError):
    """A setting, an argument or a combination of them is wrong."""

    code = "E-CONFIG"
    exit_code = ExitCode.USAGE


class ProgramNotFound(TrackerError):
    """The program does not exist."""

    code = "E-GUARD-NOT-FOUND"
    exit_code = ExitCode.NOT_FOUND


class ProgramNotExecutable(TrackerError):
    """The program cannot be executed."""

    code = "E-GUARD-NOT-EXECUTABLE"
    exit_code = ExitCode.NOT_EXECUTABLE


class CheckpointError(TrackerError):
    """A checkpoint cannot be used."""

    code = "E-CKPT"


class CheckpointNotFound(CheckpointError):
    """The folder does not exist or contains no checkpoint."""

    code = "E-CKPT-NOT-FOUND"
    exit_code = ExitCode.USAGE


class CheckpointIncomplete(CheckpointError):
    """Files are missing, truncated or still being written."""

    code = "E-CKPT-INCOMPLETE"


class CheckpointUnreadable(CheckpointError):
    """The files are complete but invalid: NaN or Inf weights, or a broken header."""

    code = "E-CKPT-UNREADABLE"


class CheckpointUnsafe(CheckpointError):
    """The checkpoint has only pickled weights, which can execute code when they are loaded."""

    code = "E-CKPT-UNSAFE"


class CheckpointVanished(CheckpointError):
    """The trainer deleted the checkpoint before it could be pinned."""

    code = "E-CKPT-VANISHED"


class CheckpointUnnamed(CheckpointError):
    """A folder with a model has another name than the checkpoints of the run, so it is not evaluated."""

    code = "E-CKPT-NAME"


class CheckpointsUnnamed(CheckpointError):
    """A run saves models, but no name has a step, or they have a form that is not supported."""

    code = "E-CKPT-NAMES"


class ConsolidationFailed(CheckpointError):
    """A sharded training state could not be converted to safetensors on this machine. The state itself is valid."""

    code = "E-CKPT-CONSOLIDATE"


class CheckpointSkipped(CheckpointError):
    """The checkpoint was not evaluated, because too many newer ones were pending."""

    code = "E-CKPT-SKIPPED"


class ServeError(TrackerError):
    """A model could not be served."""

    code = "E-SERVE"


class PortTaken(ServeError):
    """Another process listens on the configured port."""

    code = "E-SERVE-PORT"


class ServerDied(ServeError):
    """The engine exited while starting or serving. Fix the quoted cause."""

    code = "E-SERVE-DIED"


class ServerKilled(ServerDied):
    """The engine was killed by a signal of another process, possibly the out-of-memory killer."""

    code = "E-SERVE-KILLED"
    retryable = True


class StartTimeout(ServeError):
    """The engine was not ready within `serve.startup_timeout_s`."""

    code = "E-SERVE-TIMEOUT"
    retryable = True


class WrongModel(ServeError):
    """The server at this address serves another model."""

    code = "E-SERVE-MODEL"


class SwapRefused(ServeError):
    """The weights were not swapped, and the engine is unchanged. A cold start follows: nothing to do."""

    code = "E-SERVE-SWAP-REFUSED"


class SwapFailed(ServeError):
    """A weight swap was not verified, so the state of the engine is unknown."""

    code = "E-SERVE-SWAP-FAILED"
    retryable = True


class CanaryFailed(ServeError):
    """The engine did not answer the fixed prompts with enough tokens and log probabilities."""

    code = "E-SERVE-CANARY"


class TemplateUnbounded(ServeError):
    """The chat template takes too long or too much memory."""

    code = "E-SERVE-TEMPLATE"


class EndpointUnreachable(ServeError):
    """A remote endpoint does not respond."""

    code = "E-SERVE-UNREACHABLE"
    retryable = True


class EvaluateError(TrackerError):
    """A benchmark could not be evaluated."""

    code = "E-EVAL"


class UnknownBenchmark(EvaluateError):
    """The benchmark is unknown."""

    code = "E-EVAL-BENCHMARK"
    exit_code = ExitCode.USAGE


class BadData(EvaluateError):
    """A data file is missing or has an invalid line."""

    code = "E-EVAL-DATA"
    exit_code = ExitCode.USAGE


class EndpointFailed(EvaluateError):
    """Requests failed or timed out while samples were evaluated. Check the server's log."""

    code = "E-EVAL-ENDPOINT"
    retryable = True


class EndpointRefused(EvaluateError):
    """The server denied access. Check the API key."""

    code = "E-EVAL-REFUSED"


class EvaluatorDied(EvaluateError):
    """The evaluator process exited without a result."""

    code = "E-EVAL-CHILD"
    retryable = True


class ProbeError(TrackerError):
    """Latency could not be measured."""

    code = "E-PROBE"
    retryable = True


class PlanPoisoned(TrackerError):
    """A plan was set aside, because several workers in a row were lost while they evaluated it."""

    code = "E-PLAN-POISONED"


class StoreError(TrackerError):
    """Results could not be stored."""

    code = "E-STORE"


class TrackingUnreachable(StoreError):
    """The MLflow store does not respond. Results are pending in the outbox."""

    code = "E-STORE-MLFLOW"
    retryable = True


class DiskFull(StoreError):
    """No disk space is left for results or pins."""

    code = "E-STORE-DISK"
    retryable = True


class StoreUnavailable(StoreError):
    """The database does not respond, closed the connection, or is locked by another process."""

    code = "E-STORE-AWAY"
    retryable = True


class OtherSchema(StoreError):
    """The database or a stored document has the format of another version of the program."""

    code = "E-STORE-SCHEMA"


class NoSignOfLife(TrackerError):
    """A watcher or worker is not running, or its heartbeat is too old."""

    code = "E-HEALTH"


class AlertError(TrackerError):
    """An alert could not be delivered."""

    code = "E-ALERT"


class ChannelUnreachable(AlertError):
    """The service of a channel does not respond or is too busy; context `retry_after_s` if the service gave one."""

    code = "E-ALERT-UNREACHABLE"
    retryable = True


class ChannelRefused(AlertError):
    """The service of a channel rejected the message."""

    code = "E-ALERT-REFUSED"


class Incomparable(TrackerError):
    """Two results were measured differently."""

    code = "E-INCOMPARABLE"
    exit_code = ExitCode.UNKNOWN
