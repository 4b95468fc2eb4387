"""A real MLflow server. Apart from its files, because what asks a server loads more than a small watcher does."""

import sys
from contextlib import suppress
from pathlib import Path

import httpx

from tests.mlflow_stores import MlflowFiles
from tests.shared_servers import free_port, start_detached


class MlflowServer:
    """The MLflow server of all tests, which use experiments of their own."""

    NAME = "mlflow"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def files(self) -> MlflowFiles:
        """The store that it runs on."""
        return MlflowFiles(self._folder)

    def start(self) -> None:
        (self._folder / "port").write_text(str(free_port()))
        where = {
            "MLFLOW_BACKEND_STORE_URI": self.files.uri,
            "MLFLOW_ARTIFACTS_DESTINATION": self.files.artifacts.as_uri(),
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        command = [
            "env",
            *(f"{name}={value}" for name, value in where.items()),
            sys.executable,
            "-m",
            "mlflow",
            "server",
        ]
        start_detached([*command, "--port", self._port, "--workers", "1"], self._folder, self._is_ready)

    @property
    def _port(self) -> str:
        return (self._folder / "port").read_text()

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).is_success
        return False
