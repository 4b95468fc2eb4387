"""An OpenAI-compatible endpoint that somebody else runs. Nothing is started and nothing is stopped.

    spec = ServeSpec(engine=EngineKind.REMOTE, base_url="http://gpu1:8000/v1", model="run7-{step}")

The name in /v1/models is all the proof there is, so a name with `{step}` is worth more than one without.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

import openai

from eval_jobs.errors import ConfigError, EndpointUnreachable, TrackerError, WrongModel
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import masked
from eval_jobs.identity import content_hash
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process.checkpoint_files import tokenizer_folder
from eval_jobs.serve.process.control import served_model_names
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec

ANSWER_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 5.0
"""A server that is there takes a connection at once, however busy it is; a machine that is gone never does."""
RETRIES = 1
LOOK_TIMEOUT_S = 5.0
"""For who only wants to know at once."""


class RemoteEngine:
    """`eval_jobs.ports.Engine` on a URL."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Check that the endpoint serves the checkpoint's model; leaving the context changes nothing there."""
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
        """What others run, others let rest."""

    def used_cpu_s(self) -> None:
        """Return nothing: what it used is somebody else's to tell."""

    def close(self) -> None:
        """Do nothing: nothing is ours."""


def served_model(checkpoint: Checkpoint, spec: ServeSpec, *, is_look: bool = False) -> str:
    """Ask the endpoint for its models, and return the name of the one that is meant.

    With `is_look` it is asked once and not waited for: one that is merely slow is taken to be away, too.

    Raises:
        ConfigError: the address or the key cannot be right.
        EndpointUnreachable: nobody answers, or not properly.
        WrongModel: it serves others.
    """
    url = checked_base_url(spec.base_url)
    timeout_s, retries = (LOOK_TIMEOUT_S, 0) if is_look else (ANSWER_TIMEOUT_S, RETRIES)
    timeout = openai.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    key = _key(spec.api_key_env)
    # A proxy from the environment knows nothing of a server on this machine.
    loopback = urlsplit(url).hostname in LOOPBACK
    with (
        openai.DefaultHttpxClient(trust_env=not loopback) as http_client,
        # Here, not there: five seconds there would be taken for none that was asked for, and become ten minutes.
        openai.OpenAI(
            base_url=url, api_key=key, max_retries=retries, timeout=timeout, http_client=http_client
        ) as client,
    ):
        offered = _offered_models(client, url, key, spec.api_key_env)
    return chosen_model(model_name(spec.model, checkpoint), offered, url=url)


def checked_base_url(base_url: str) -> str:
    """Return `base_url` without a slash at its end. Pure.

    Raises:
        ConfigError: it is no http(s) URL, or it carries a secret.
    """
    parts = _split(base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"serve.base_url is not an http(s) URL: {base_url!r}", hint='write it as "http://host:8000/v1", with /v1'
        )
    if parts.username or parts.password or parts.query:
        # The text itself stays out of the message: it would end up in logs.
        raise ConfigError(
            f"serve.base_url of {parts.hostname} contains a user name, a password or a query",
            hint="put the key into an environment variable and set serve.api_key_env to its name",
        )
    return base_url.rstrip("/")


def model_name(template: str, checkpoint: Checkpoint) -> str:
    """Return the model name to ask for, `{step}` and `{run}` replaced. Pure."""
    return template.replace("{step}", str(checkpoint.step)).replace("{run}", checkpoint.run_id)


def chosen_model(wanted: str, offered: tuple[str, ...], *, url: str) -> str:
    """Return `wanted` when it is offered, for "" the only one that is. Pure.

    Raises:
        WrongModel: it is not there, or there are several to choose from.
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
    raise WrongModel(f"{url} serves {len(offered)} models: {listed}", hint="set serve.model to one of them")


# --- private


def _split(base_url: str) -> SplitResult:
    try:
        parts = urlsplit(base_url)
        _ = parts.port  # read, because a port that is no number only shows here
    except ValueError as error:
        raise ConfigError(f"invalid serve.base_url: {error}", hint='write it as "http://host:8000/v1"') from error
    return parts


def _key(variable: str) -> str:
    if not variable:
        return "none"  # the client insists on one; servers without keys ignore it
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
    if not isinstance(body, dict) or "data" not in body:
        raise WrongModel(
            f"{url}/models is not an OpenAI-compatible endpoint", hint="check that serve.base_url ends in /v1"
        )
    return tuple(masked(name, (key,)) for name in served_model_names(body))  # shown and stored where none of them fits


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
        return EndpointUnreachable(
            f"{url}/models returned HTTP {error.status_code}", hint="read the log of that server"
        )
    reason = error.__cause__ or error
    return EndpointUnreachable(
        f"no response from {url}: {reason}", hint="check that the server is running and reachable from this machine"
    )
