"""Every error that a person may see, with a stable code, an exit code and what to do next.

    TrackerError                     E-TRACKER            4
    |- ConfigError                   E-CONFIG             2   a setting or an argument is wrong
    |- CheckpointError               E-CKPT               4
    |  |- CheckpointNotFound         E-CKPT-NOT-FOUND     2   nothing there, or no checkpoint in it
    |  |- CheckpointIncomplete       E-CKPT-INCOMPLETE    4   half-written, truncated, a shard missing
    |  |- CheckpointUnreadable       E-CKPT-UNREADABLE    4   NaN or Inf weights, a broken header
    |  |- CheckpointUnsafe           E-CKPT-UNSAFE        4   pickle weights only
    |  |- CheckpointVanished         E-CKPT-VANISHED      4   deleted before it could be pinned
    |  |- CheckpointSkipped          E-CKPT-SKIPPED       4   too many newer ones were waiting
    |  `- ConsolidationFailed        E-CKPT-CONSOLIDATE   4   a sharded state could not be put together here
    |- ServeError                    E-SERVE              4
    |  |- PortTaken                  E-SERVE-PORT         4
    |  |- ServerDied                 E-SERVE-DIED         4
    |  |- ServerKilled               E-SERVE-KILLED       4   retryable: somebody else ended it
    |  |- StartTimeout               E-SERVE-TIMEOUT      4   retryable
    |  |- WrongModel                 E-SERVE-MODEL        4   somebody else answers, or another model
    |  |- SwapRefused                E-SERVE-SWAP-REFUSED 4   the engine still serves what it did: start anew
    |  |- SwapFailed                 E-SERVE-SWAP-FAILED  4   retryable: what the engine holds is not known
    |  |- CanaryFailed               E-SERVE-CANARY       4   its answers to the fixed prompts are none
    |  `- EndpointUnreachable        E-SERVE-UNREACHABLE  4   retryable
    |- EvaluateError                 E-EVAL               4
    |  |- UnknownBenchmark           E-EVAL-BENCHMARK     2
    |  |- BadData                    E-EVAL-DATA          2
    |  |- EndpointFailed             E-EVAL-ENDPOINT      4   retryable: the server went away or refused
    |  |- EndpointRefused            E-EVAL-REFUSED       4   the key is wrong or not allowed
    |  `- EvaluatorDied              E-EVAL-CHILD         4   retryable
    |- ProbeError                    E-PROBE              4   retryable
    |- PlanPoisoned                  E-PLAN-POISONED      4   its workers went away again and again
    |- StoreError                    E-STORE              4
    |  |- TrackingUnreachable        E-STORE-MLFLOW       4   retryable
    |  |- DiskFull                   E-STORE-DISK         4   retryable
    |  |- StoreUnavailable           E-STORE-AWAY         4   retryable: it does not answer, or is locked
    |  `- SchemaTooNew               E-STORE-SCHEMA       4   written by a newer program
    |- NoSignOfLife                  E-HEALTH             4   a process is gone, stopped or stuck
    |- AlertError                    E-ALERT              4
    |  |- ChannelUnreachable         E-ALERT-UNREACHABLE  4   retryable: nobody answers, or not now
    |  `- ChannelRefused             E-ALERT-REFUSED      4   the service does not take it: key, signature, content
    `- Incomparable                  E-INCOMPARABLE       3   the two sides were not measured alike

An adapter maps the errors of its library here, in one place, with `raise X(...) from exc`.
A regression is not an error: it is a verdict.
"""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """How every command ends; docs/how-it-works.md shows them to users."""

    OK = 0
    """Measured, nothing lost; delivered; alive."""
    REGRESSION = 1
    """The model is worse, a loss is placed, or a benchmark is unfit."""
    USAGE = 2
    """A wrong setting, argument or data file, or more than is allowed."""
    UNKNOWN = 3
    """Missing, incomparable or inconclusive: nothing can be said of the model."""
    BROKEN = 4
    """Something failed, foreseen or not; it says nothing about a model."""
    INTERRUPTED = 130
    """By Ctrl-C or a signal."""
    UNREAD = 141
    """Nobody reads the output any more, as a shell gives it to every command of a pipe."""


class TrackerError(Exception):
    """What went wrong, where, and what to do. `message` says what and where, `hint` what to do next."""

    code: ClassVar[str] = "E-TRACKER"
    exit_code: ClassVar[ExitCode] = ExitCode.BROKEN
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str, **context: str | int | float) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context

    def __str__(self) -> str:
        return f"{self.code}: {self.message} ({self.hint})"


class ConfigError(TrackerError):
    """A setting, an argument or a combination of them is wrong."""

    code = "E-CONFIG"
    exit_code = ExitCode.USAGE


class CheckpointError(TrackerError):
    """A checkpoint cannot be used."""

    code = "E-CKPT"


class CheckpointNotFound(CheckpointError):
    """The folder does not exist or holds no checkpoint."""

    code = "E-CKPT-NOT-FOUND"
    exit_code = ExitCode.USAGE


class CheckpointIncomplete(CheckpointError):
    """Files are missing, truncated or still being written."""

    code = "E-CKPT-INCOMPLETE"


class CheckpointUnreadable(CheckpointError):
    """All files are there and what they hold is broken: NaN or Inf weights, a header that is no header."""

    code = "E-CKPT-UNREADABLE"


class CheckpointUnsafe(CheckpointError):
    """Only pickle weights are there, which can run code when they are loaded."""

    code = "E-CKPT-UNSAFE"


class CheckpointVanished(CheckpointError):
    """The trainer deleted the checkpoint before it could be pinned."""

    code = "E-CKPT-VANISHED"


class ConsolidationFailed(CheckpointError):
    """A training state is held and could not be made into safetensors on this machine; nothing is wrong with it."""

    code = "E-CKPT-CONSOLIDATE"


class CheckpointSkipped(CheckpointError):
    """It is pinned and was not evaluated, because too many newer ones were waiting."""

    code = "E-CKPT-SKIPPED"


class ServeError(TrackerError):
    """A model could not be served."""

    code = "E-SERVE"


class PortTaken(ServeError):
    """Another process listens on the port that was asked for."""

    code = "E-SERVE-PORT"


class ServerDied(ServeError):
    """The engine ended while starting or serving."""

    code = "E-SERVE-DIED"


class ServerKilled(ServerDied):
    """The engine was killed by a signal that we did not send: memory may have run out, for once."""

    code = "E-SERVE-KILLED"
    retryable = True


class StartTimeout(ServeError):
    """The engine did not answer within `serve.startup_timeout_s`."""

    code = "E-SERVE-TIMEOUT"
    retryable = True


class WrongModel(ServeError):
    """Something answers at the address, and it is not the model that was asked for."""

    code = "E-SERVE-MODEL"


class SwapRefused(ServeError):
    """Weights were not swapped in; nothing of the engine was touched, and it serves what it did."""

    code = "E-SERVE-SWAP-REFUSED"


class SwapFailed(ServeError):
    """A swap was begun and not proved: the engine must be taken for dead."""

    code = "E-SERVE-SWAP-FAILED"
    retryable = True


class CanaryFailed(ServeError):
    """An engine answered the fixed prompts with no numbers, too few tokens, or not at all."""

    code = "E-SERVE-CANARY"


class EndpointUnreachable(ServeError):
    """A remote endpoint does not answer."""

    code = "E-SERVE-UNREACHABLE"
    retryable = True


class EvaluateError(TrackerError):
    """A benchmark could not be evaluated."""

    code = "E-EVAL"


class UnknownBenchmark(EvaluateError):
    """No benchmark of that name exists."""

    code = "E-EVAL-BENCHMARK"
    exit_code = ExitCode.USAGE


class BadData(EvaluateError):
    """A data file is missing or has a broken line."""

    code = "E-EVAL-DATA"
    exit_code = ExitCode.USAGE


class EndpointFailed(EvaluateError):
    """The server went away, refused or timed out while samples were being answered."""

    code = "E-EVAL-ENDPOINT"
    retryable = True


class EndpointRefused(EvaluateError):
    """The server does not let us in: asking again is useless until somebody corrects the key."""

    code = "E-EVAL-REFUSED"


class EvaluatorDied(EvaluateError):
    """The evaluator's process ended without a result."""

    code = "E-EVAL-CHILD"
    retryable = True


class ProbeError(TrackerError):
    """Latency could not be measured."""

    code = "E-PROBE"
    retryable = True


class PlanPoisoned(TrackerError):
    """A plan was set aside, because its workers went away in the middle of it again and again."""

    code = "E-PLAN-POISONED"


class StoreError(TrackerError):
    """Results could not be stored."""

    code = "E-STORE"


class TrackingUnreachable(StoreError):
    """The MLflow store does not answer; results wait in the outbox."""

    code = "E-STORE-MLFLOW"
    retryable = True


class DiskFull(StoreError):
    """No space is left where results or pins are written."""

    code = "E-STORE-DISK"
    retryable = True


class StoreUnavailable(StoreError):
    """The database does not answer now, cut the connection, or is locked by somebody else."""

    code = "E-STORE-AWAY"
    retryable = True


class SchemaTooNew(StoreError):
    """The tables have a version that only a newer program knows."""

    code = "E-STORE-SCHEMA"


class NoSignOfLife(TrackerError):
    """A watcher or a worker is not there, or has not gone round its loop for too long."""

    code = "E-HEALTH"


class AlertError(TrackerError):
    """People could not be told."""

    code = "E-ALERT"


class ChannelUnreachable(AlertError):
    """The service of a channel does not answer, or is too busy; context `retry_after_s` where it says for how long."""

    code = "E-ALERT-UNREACHABLE"
    retryable = True


class ChannelRefused(AlertError):
    """The service of a channel answers that it does not take the message."""

    code = "E-ALERT-REFUSED"


class Incomparable(TrackerError):
    """Two results were not measured alike."""

    code = "E-INCOMPARABLE"
    exit_code = ExitCode.UNKNOWN
