"""Errors of MLflow, of its database and of the network -> ours. The only place that maps them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException, RestException
from sqlalchemy.exc import SQLAlchemyError

from eval_jobs.errors import ConfigError, StoreError, TrackerError, TrackingUnreachable
from tracker.adapters.mlflow.address import first_line, unreachable

log = logging.getLogger(__name__)

REFUSALS = frozenset(
    {
        "ALREADY_EXISTS",
        "BAD_REQUEST",
        "INVALID_PARAMETER_VALUE",
        "INVALID_STATE",
        "NOT_FOUND",
        "RESOURCE_ALREADY_EXISTS",
        "RESOURCE_CONFLICT",
        "RESOURCE_DOES_NOT_EXIST",
    }
)
"""Error codes that concern only this request; the next item may succeed."""

NO_ACCESS = frozenset({"CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED", "UNAUTHENTICATED"})


@contextmanager
def mapped_mlflow_errors(uri: str) -> Iterator[None]:
    """Map all errors that a call of the client can raise.

    Raises:
        TrackingUnreachable: the store does not respond, is locked, cannot be written or refuses the credentials.
        StoreError: the store rejected the request, or its answer has another form.
        ConfigError: the address needs a driver that is not installed, or the server is too old for this request.
    """
    try:
        yield
    except MlflowException as error:
        raise _of_mlflow(error, uri) from error
    except (SQLAlchemyError, OSError) as error:
        raise unreachable(uri, str(error)) from error
    except NotImplementedError as error:  # the client compares versions itself
        raise ConfigError(
            f"the MLflow server {uri} is too old: {first_line(str(error))}", hint="update the MLflow server"
        ) from error
    except ImportError as error:
        raise ConfigError(
            f"missing database driver for the MLflow store {uri}: {error}",
            hint="install the driver, or use http://host:port or sqlite:////absolute/path.db as tracking.uri",
        ) from error
    except TrackerError:
        raise
    except Exception as error:  # the client reads answers without checking them
        log.debug("unexpected answer", exc_info=error)
        raise StoreError(
            f"unexpected answer of the MLflow store {uri}: {type(error).__name__}: {first_line(str(error))}",
            hint="check that tracking.uri is the address of an MLflow server; the request is retried",
        ) from error


def _of_mlflow(error: MlflowException, uri: str) -> StoreError:
    code = error.error_code
    if code in NO_ACCESS:
        return TrackingUnreachable(
            f"access denied by the MLflow server {uri}: {first_line(error.message)}",
            hint="check tracking.username and tracking.password_file, or set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN), and restart; pending results are kept",
        )
    # Without a response there is no RestException, but the client reports an internal error for that, too.
    answered = isinstance(error, RestException) or not uri.startswith("http")
    if code in REFUSALS or (code == "INTERNAL_ERROR" and answered):
        return StoreError(
            f"request rejected by the MLflow store {uri}: {first_line(error.message)}",
            hint=f"{'see the log of the MLflow server; ' if uri.startswith('http') else ''}the request is retried",
        )
    return unreachable(uri, error.message)
