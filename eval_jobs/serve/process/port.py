"""Chooses the port of an engine."""

import random
import socket

from eval_jobs.errors import ConfigError, PortTaken
from eval_jobs.serve.process.launch import HOST

PORTS = range(20_000, 30_000)
"""Below the kernel's range for outgoing connections, one of which could take the port before the engine binds it."""


def choose_port(wanted: int) -> int:
    """Return `wanted` if nothing listens there, or any free port for 0.

    Raises:
        PortTaken: another process listens on `wanted`, or no free port was found.
        ConfigError: `wanted` is not a valid port, or requires privileges.
    """
    if wanted:
        if not _is_free(wanted):
            raise PortTaken(
                f"port {wanted} on {HOST} is taken by another process",
                hint=f"find it with `ss -ltnp 'sport = :{wanted}'`, or set serve.port = 0 to pick a free port",
            )
        return wanted
    for port in random.sample(PORTS, 100):
        if _is_free(port):
            return port
    raise PortTaken(f"no free port found in {PORTS.start}-{PORTS.stop - 1}", hint="set serve.port to a free port")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the engine does: lingering connections of a stopped server do not block the port, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OverflowError, PermissionError) as error:
            raise ConfigError(
                f"cannot use port {port}: {error}", hint="set serve.port between 1024 and 65535"
            ) from error
        except OSError:
            return False
    return True
