"""Which port an engine may use, and who answers there."""

from __future__ import annotations

import http.client
import json
import random
import socket
from dataclasses import dataclass

from eval_jobs.errors import ConfigError, PortTaken
from eval_jobs.serve.process.launch import HOST

PORTS = range(20_000, 30_000)
"""Below the kernel's range for outgoing connections, one of which could take the port before the engine binds it."""

ANSWER_TIMEOUT_S = 20.0
"""An engine beside a trainer that has all the cores is slow to answer, and is not dead."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server said to one GET."""

    status: int
    body: object
    """Parsed JSON, None when it was none."""


def choose_port(wanted: int) -> int:
    """Return `wanted` when nothing listens there, or any free port for 0.

    Raises:
        PortTaken: something listens on `wanted`.
        ConfigError: `wanted` is no port, or not for us.
    """
    if wanted:
        if not _is_free(wanted):
            raise PortTaken(
                f"port {wanted} on {HOST} is taken by another process",
                hint=f"see `ss -ltnp 'sport = :{wanted}'` for which one, or set serve.port = 0 to pick a free port",
            )
        return wanted
    for port in random.sample(PORTS, 100):
        if _is_free(port):
            return port
    raise PortTaken(f"no free port found in {PORTS.start}-{PORTS.stop - 1}", hint="name a free one as serve.port")


def ask(port: int, path: str) -> Answer | None:
    """GET `path` from the server at `port` of this machine, past any proxy; None when nothing answers (yet)."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(status=response.status, body=_parsed(response.read()))
    except (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected):
        return None
    except http.client.HTTPException:
        return Answer(status=0, body=None)  # something answers that does not speak HTTP
    finally:
        connection.close()


def model_names(body: object) -> tuple[str, ...]:
    """Return the ids in the JSON of /v1/models; () when it is something else. Pure."""
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)


# --- private


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the engine will do it: a connection that lingers after its server's end is no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OverflowError, PermissionError) as error:
            raise ConfigError(
                f"port {port} cannot be used: {error}", hint="set serve.port between 1024 and 65535"
            ) from error
        except OSError:
            return False
    return True


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None
