"""A real Alertmanager from Debian, which keeps what it knows in a folder and forgets its alerts when it ends."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.requires import requires_binary
from tests.shared_servers import alone_with, free_port, start_detached, stop_detached

PATIENCE_S = 60.0
"""Far more than it needs on a machine that does much else."""


class AlertmanagerServer:
    """A server that a test may stop and start again on the same address; it forgets its alerts then."""

    NAME = "alertmanager"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._auth: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self._address}"

    def start(self, *, receiver: str = "", password_hash: str = "") -> None:
        """Start it, with an address that news are sent to, and with a password of the user `me`, or without."""
        hooks = [{"url": receiver, "send_resolved": True}] if receiver else []
        route = {"receiver": "us", "group_by": ["run"], "group_wait": "200ms", "group_interval": "1s"}
        config = {"route": route, "receivers": [{"name": "us", "webhook_configs": hooks}]}
        (self._folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        users = {"me": password_hash} if password_hash else {}
        (self._folder / "web.yml").write_text(json.dumps({"basic_auth_users": users} if users else {}))
        self._auth = ("me", "secret") if password_hash else None
        if not (self._folder / "address").exists():
            (self._folder / "address").write_text(f"127.0.0.1:{free_port()}")
        options = {
            "config.file": self._folder / "config.yml",
            "storage.path": self._folder / "data",
            "web.config.file": self._folder / "web.yml",
            "web.listen-address": self._address,
            "cluster.listen-address": "",
        }
        command = [str(requires_binary("prometheus-alertmanager")), *(f"--{k}={v}" for k, v in options.items())]
        start_detached(command, self._folder, self._is_ready)

    def stop(self) -> None:
        """Stop it."""
        stop_detached(self._folder)

    def alerts(self) -> list[dict[str, Any]]:
        """Return what is firing, as its own page asks."""
        reply = httpx.get(f"{self.url}/api/v2/alerts", auth=self._auth, trust_env=False)
        reply.raise_for_status()
        found: list[dict[str, Any]] = reply.json()
        return found

    @property
    def _address(self) -> str:
        return (self._folder / "address").read_text()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", auth=self._auth, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"not within {PATIENCE_S} s")


@contextmanager
def alertmanager(*, receiver: str = "", password_hash: str = "") -> Iterator[AlertmanagerServer]:
    """Have the server that all tests share to oneself, with settings of its own and without alerts."""
    with alone_with(AlertmanagerServer) as server:
        server.stop()
        server.start(receiver=receiver, password_hash=password_hash)
        try:
            yield server
        finally:
            server.stop()
            server.start()
