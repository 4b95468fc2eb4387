"""An engine: any OpenAI-compatible server that a command starts, such as `llama-server` of llama.cpp.

[serve]
engine = "command"
options = { command = "llama-server --model {model}/model.gguf --port {port}" }
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import ConfigError, ServerDied, StartTimeout
from eval_jobs.host.machine import machine_id
from eval_jobs.host.secrets import without_secrets
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process.control import ask
from eval_jobs.serve.process.lifecycle import EngineProcess, start
from eval_jobs.serve.process.port import choose_port
from eval_jobs.serve.remote import RemoteEngine
from eval_jobs.types import Checkpoint, Endpoint, ServeSpec


class CommandEngine:
    """`eval_jobs.ports.Engine` that starts a server for each checkpoint and stops it after."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        """Begin with nothing running."""
        self._work_dir, self._clock = work_dir, clock

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Start the server and wait until it lists its model."""
        if spec.program:
            spec.program.check_options("command")
        command = spec.program.option("command") if spec.program else ""
        if not command:
            raise ConfigError("the engine `command` has no command", hint="set serve.options.command")
        port, began_s = choose_port(0), self._clock.monotonic_s()
        words = [word.replace("{model}", checkpoint.uri).replace("{port}", str(port)) for word in shlex.split(command)]
        progress(f"starting {words[0]}")
        env = without_secrets(os.environ)
        server = start(words, env, folder=self._work_dir, name=f"port-{port}", clock=self._clock)
        try:
            self._wait(server, port, spec.startup_timeout_s)
            there = replace(spec, base_url=f"http://127.0.0.1:{port}/v1", model="", api_key_env="")
            with RemoteEngine(self._clock).serving(checkpoint, there, progress=progress) as endpoint:
                load_s = self._clock.monotonic_s() - began_s
                info = replace(endpoint.info, name=Path(words[0]).name, load_method="cold", load_s=load_s)
                yield replace(endpoint, info=replace(info, log=str(server.log), machine=machine_id()))
        finally:
            server.stop()

    def _wait(self, server: EngineProcess, port: int, timeout_s: float) -> None:
        until_s = self._clock.monotonic_s() + timeout_s
        while (answer := ask(port, "/v1/models")) is None or answer.status != 200:
            if server.exit_code() is not None:
                raise ServerDied(f"the server ended with exit code {server.exit_code()}", hint=f"read {server.log}")
            if self._clock.monotonic_s() > until_s:
                raise StartTimeout(f"no answer within {timeout_s:g} s", hint=f"read {server.log}")
            self._clock.sleep(0.1)

    def rest(self) -> None:
        """Nothing runs between two services."""

    def used_cpu_s(self) -> float | None:
        """Return None: not counted."""
        return None

    def close(self) -> None:
        """Nothing runs between two services."""
