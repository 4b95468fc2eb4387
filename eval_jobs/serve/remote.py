"""An OpenAI-compatible endpoint that runs elsewhere. Nothing is started or stopped.

    spec = ServeSpec(engine=EngineKind.REMOTE, base_url="http://gpu1:8000/v1", model="run7-{step}")

The model name in /v1/models is the only check, so a name with `{step}` is a stronger check than one without.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import openai

from eval_jobs.errors import ConfigError, EndpointUnreachable, TrackerError, WrongModel
from eval_jobs.host.bounded.client import BoundedClient
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import masked
from eval_jobs.identity import content_hash
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process.checkpoint_files import tokenizer_folder
from eval_jobs.serve.process.control import served_model_names
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec

ANSWER_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 5.0
"""A running server accepts a connection immediately, even under load; a machine that is down never does."""
RETRIES = 1
LOOK_TIMEOUT_S = 5.0
"""Timeout of a single check without retries (`is_look`)."""


class RemoteEngine:
    """`eval_jobs.ports.Engine` for the server at a URL."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Check that the endpoint serves the checkpoint's model; leaving the context does not affect the server."""
        started_at = self._clock.now()
        url = checked_base_url(spec.base_url)
        progress(f"querying the models of {url}")
        model = served_model(checkpoint, spec)
        load_s = (self._clock.now() - started_at).total_seconds()
        yield Endpoint(
            base_url=url,
            model=model,
            api_key_env=spec.api_key_env,
            info=EngineInfo(
                name="remote", version="", load_method="remote", load_s=load_s, log="", machine=content_hash(url)
            ),
            tokenizer=tokenizer_folder(checkpoint),
        )

    def rest(self) -> None:
        """Do nothing: the server is not managed by the tracker."""

    def used_cpu_s(self) -> None:
        """Return None: the CPU time of a remote server is unknown."""

    def close(self) -> None:
        """Do nothing: no process was started."""


def served_model(checkpoint: Checkpoint, spec: ServeSpec, *, is_look: bool = False) -> str:
    """Query the models of the endpoint, and return the name of the requested one.

    With `is_look`, there is one attempt with a short timeout: a slow server counts as unreachable, too.

    Raises:
        ConfigError: the URL is invalid, or the API key is missing or rejected.
        EndpointUnreachable: there is no response, or an HTTP error.
        WrongModel: it serves other models, or is not an OpenAI-compatible endpoint.
    """
    url = checked_base_url(spec.base_url)
    timeout_s, retries = (LOOK_TIMEOUT_S, 0) if is_look else (ANSWER_TIMEOUT_S, RETRIES)
    timeout = openai.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    key = _key(spec.api_key_env)
    # A proxy from the environment cannot reach a server on this machine.
    loopback = urlsplit(url).hostname in LOOPBACK
    with (
        BoundedClient(timeout_s, {}, trust_env=not loopback) as http_client,
        # Set here, not on the HTTP client: there, 5 s (the httpx default) counts as unset and becomes 10 minutes.
        openai.OpenAI(
            base_url=url,
            api_key=key,
            max_retries=retries,
            timeout=timeout,
            http_client=http_client,  # type: ignore[arg-type]
        ) as client,
    ):
        offered = _offered_models(client, url, key, spec.api_key_env)
    return chosen_model(model_name(spec.model, checkpoint), offered, url=url)


def checked_base_url(base_url: str) -> str:
    """Return `base_url` without trailing slashes. Pure.

    Raises:
        ConfigError: it is not an http(s) URL, or it contains a user name, a password or a query.
    """
    try:
        parts = urlsplit(base_url)
        _ = parts.port  # parsed on access: an invalid port raises only here
    except ValueError as error:
        raise ConfigError(f"invalid serve.base_url: {error}", hint='write it as "http://host:8000/v1"') from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"serve.base_url is not an http(s) URL: {base_url!r}", hint='write it as "http://host:8000/v1", with /v1'
        )
    if parts.username or parts.password or parts.query:
        # The message does not contain the URL: a secret in it would end up in logs.
        raise ConfigError(
            f"serve.base_url of {parts.hostname} contains a user name, a password or a query",
            hint="put the key into an environment variable and set serve.api_key_env to its name",
        )
    return base_url.rstrip("/")


def model_name(template: str, checkpoint: Checkpoint) -> str:
    """Return the model name to request, with `{step}` and `{run}` substituted. Pure."""
    return template.replace("{step}", str(checkpoint.step)).replace("{run}", checkpoint.run_id)


def chosen_model(wanted: str, offered: tuple[str, ...], *, url: str) -> str:
    """Return `wanted` if it is offered; for "", the only model that is offered. Pure.

    Raises:
        WrongModel: `wanted` is not offered, or it is "" and there is not exactly one model.
    """
    listed = ", ".join(offered) or "none"
    if wanted:
        if wanted in offered:
            return wanted
        raise WrongModel(
            f"{url} does not serve {wanted} (available: {listed})",
            hint="correct serve.model, or load the model on that server",
        )
    if len(offered) == 1:
        return offered[0]
    hint = "set serve.model to one of them" if offered else "load a model on that server"
    raise WrongModel(f"{url} serves {len(offered)} models: {listed}", hint=hint)


def _key(variable: str) -> str:
    if not variable:
        return "none"  # the client requires a key; servers without keys ignore it
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(
            f"the environment variable {variable} of serve.api_key_env is not set",
            hint=f"export {variable}=... before starting the worker, or remove serve.api_key_env",
        )
    return key


def _offered_models(client: openai.OpenAI, url: str, key: str, variable: str) -> tuple[str, ...]:
    try:
        body = client.get("/models", cast_to=object)
    except openai.OpenAIError as error:
        raise _mapped(error, url, variable) from error
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or "data" not in body:
        raise WrongModel(
            f"{url}/models is not an OpenAI-compatible endpoint", hint="check that serve.base_url ends in /v1"
        )
    return tuple(masked(name, (key,)) for name in served_model_names(body))  # shown and stored if none of them matches


def _mapped(error: openai.OpenAIError, url: str, variable: str) -> TrackerError:
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        which = f"the API key in {variable}" if variable else "requests without an API key"
        return ConfigError(
            f"{url} rejects {which} (HTTP {error.status_code})",
            hint="put a valid key into an environment variable and set serve.api_key_env to its name",
        )
    if isinstance(error, openai.NotFoundError):
        return WrongModel(f"{url}/models does not exist (HTTP 404)", hint="check that serve.base_url ends in /v1")
    if isinstance(error, openai.APIStatusError):
        said = f": {error.body.get('message')}" if isinstance(error.body, dict) else ""
        failed = f"{url}/models returned HTTP {error.status_code}{said}"
        return EndpointUnreachable(failed, hint="see the log of that server")
    reason = error.__cause__ or error
    return EndpointUnreachable(
        f"no response from {url}: {reason}", hint="check that the server is running and reachable from this machine"
    )
