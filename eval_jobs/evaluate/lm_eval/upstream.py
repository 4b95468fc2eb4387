"""Asks an endpoint one question, again where that helps, and tells a refused question from a server that is gone."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.common.answer_check import ENDINGS, FILTERED
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import masked
from eval_jobs.types import Endpoint

PAUSES_S = (1.0, 4.0)
"""Before the second and the third try."""
ALIVE_TIMEOUT_S = 10.0
_LATER = {408, 409, 425, 429}
_FORBIDDEN = {401, 403}
_SHOWN_CHARS = 300

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A proper completion."""

    body: Json


@dataclass(frozen=True, kw_only=True)
class Refused:
    """One question got no proper answer although the server lives."""

    detail: str
    may_pass: bool = False
    """Whether the server may be to blame, and not the question."""


class Upstream:
    """The endpoint. Safe for threads."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        """Open the client; nobody is asked yet."""
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._key = os.environ.get(endpoint.api_key_env, "") if endpoint.api_key_env else "EMPTY"
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {self._key}"},
            timeout=timeout_s,
            trust_env=urlsplit(endpoint.base_url).hostname not in LOOPBACK,
            limits=httpx.Limits(max_connections=None),
        )

    def ask(self, route: str, body: Json) -> Answered | Refused:
        """Return what the endpoint says.

        Raises:
            EndpointFailed: it is gone, or busy for long.
            EndpointRefused: it takes no such key.
        """
        url = self._endpoint.base_url + route.removeprefix("/v1")
        body = body | {"model": self._endpoint.model}
        said = ""
        for pause_s in (*PAUSES_S, 0.0):
            try:
                reply = self._client.post(url, json=body)
            except httpx.TimeoutException:
                said = f"no answer within {self._timeout_s:g} s"
                break  # another try would cost as much
            except httpx.HTTPError as error:
                said = f"{type(error).__name__}: {error}"
            else:
                found = self._read(reply)
                if isinstance(found, Answered) or not found.may_pass:
                    return found
                said = found.detail
            threading.Event().wait(pause_s)
        if self._is_alive():
            return Refused(detail=said, may_pass=True)
        raise EndpointFailed(f"{self._endpoint.base_url} does not answer: {said}", hint=self._hint)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    # --- private

    @property
    def _hint(self) -> str:
        log = self._endpoint.info.log
        return f"see the server's log{f' {log}' if log else ''}; what was answered is kept, the next try asks the rest"

    def _read(self, reply: httpx.Response) -> Answered | Refused:
        if reply.status_code in _FORBIDDEN:
            raise EndpointRefused(
                f"{self._endpoint.base_url} refuses the key: {self._shown(reply)}", hint="correct serve.api_key_env"
            )
        if reply.status_code == httpx.codes.NOT_FOUND:
            raise EndpointFailed(f"{self._endpoint.base_url}: {self._shown(reply)}", hint=self._hint)
        if reply.status_code != httpx.codes.OK:
            is_later = reply.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or reply.status_code in _LATER
            return Refused(detail=self._shown(reply), may_pass=is_later)
        return self._completion(masked(reply.text, (self._key,)))  # a server may repeat the key that it was sent

    def _completion(self, text: str) -> Answered | Refused:
        try:
            body = json.loads(text)
            choices = body["choices"]
            texts = [choice["message"]["content"] if "message" in choice else choice["text"] for choice in choices]
            endings = [choice.get("finish_reason") for choice in choices]
        except (ValueError, KeyError, TypeError, AttributeError):
            return Refused(detail=f"the answer is no completion: {text[:_SHOWN_CHARS]}", may_pass=True)
        if FILTERED in endings:
            return Refused(detail="the answer was filtered")
        if odd := [ending for ending in endings if ending not in ENDINGS]:
            return Refused(detail=f"the answer did not end properly (finish_reason: {odd[0]})", may_pass=True)
        if not texts or not all(isinstance(text, str) for text in texts):
            return Refused(detail="the answer holds no text")
        if (
            self._endpoint.info.is_ours and body.get("model") != self._endpoint.model
        ):  # our own engine goes by a random name
            raise EndpointFailed(f"{self._endpoint.base_url} answers as {body.get('model')}", hint=self._hint)
        return Answered(body=body)

    def _shown(self, reply: httpx.Response) -> str:
        return f"HTTP {reply.status_code}: {masked(reply.text, (self._key,))[:_SHOWN_CHARS]}"

    def _is_alive(self) -> bool:
        try:
            reply = self._client.get(f"{self._endpoint.base_url}/models", timeout=ALIVE_TIMEOUT_S)
        except httpx.HTTPError:
            return False
        return reply.status_code < httpx.codes.INTERNAL_SERVER_ERROR
