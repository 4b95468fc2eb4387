"""A real Alertmanager from Debian, which keeps what it knows in a folder and forgets its alerts when it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests import starts
from tests.requires import requires_binary

PATIENCE_S = 60.0
"""Far more than it needs on a machine that does much else."""


class AlertmanagerServer:
    """A server that a test may stop and start again on the same address."""

    def __init__(self, folder: Path, *, receiver: str = "", password_hash: str = "") -> None:
        self._program = requires_binary("prometheus-alertmanager")
        self._folder = folder
        folder.mkdir(exist_ok=True)
        hooks = [{"url": receiver, "send_resolved": True}] if receiver else []
        route = {"receiver": "us", "group_by": ["run"], "group_wait": "200ms", "group_interval": "1s"}
        config = {"route": route, "receivers": [{"name": "us", "webhook_configs": hooks}]}
        (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        (folder / "web.yml").write_text(
            json.dumps({"basic_auth_users": {"me": password_hash}} if password_hash else {})
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._auth = ("me", "secret") if password_hash else None
        self.url = f"http://{self._address}"

    def start(self) -> None:
        options = {
            "config.file": self._folder / "config.yml",
            "storage.path": self._folder / "data",
            "web.config.file": self._folder / "web.yml",
            "web.listen-address": self._address,
            "cluster.listen-address": "",
        }
        command = [str(self._program), *(f"--{key}={value}" for key, value in options.items())]
        starts.note("alertmanager")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._is_ready)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def alerts(self) -> list[dict[str, Any]]:
        """Return what is firing, as its own page asks."""
        reply = httpx.get(f"{self.url}/api/v2/alerts", auth=self._auth, trust_env=False)
        reply.raise_for_status()
        found: list[dict[str, Any]] = reply.json()
        return found

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
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
