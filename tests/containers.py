"""Services of docker-compose.yml as containers without an engine and without images: namespaces, mounts, users.

    with Containers(tmp_path, runs=folder) as site:
        site.up("mlflow", "watch")
        site.run("watch", "tracker", "history")

A service runs by its own command, environment, secrets, volumes, user and health check of that file: in a root of its
own that holds the system's and our programs read-only, without rights, and with nothing else of this machine. What is
not the same: PostgreSQL is the system's (started as its image starts it), the S3 server is moto, the environment is
this one, and all services share one network of their own.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pytest
import yaml

from tests.requires import PROJECT, requires_binary, requires_namespaces

PATIENCE_S = 240.0
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of each service
USERS = {"postgres": (999, 999), "moto": (1000, 1000)}
"""Of the images; ours is that of .env."""

# Debian's own paths; what else a service sees is named by the compose file.
SYSTEM = ("/usr", "/etc", "/dev", "/proc", "/sys")
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run"}

NETWORK = """
import fcntl, signal, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
print("up", flush=True)
signal.pause()
"""

POSTGRES = """
umask 077
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username=postgres --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 --no-sync > /dev/null
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    pg_ctl -w -o "-c listen_addresses= -c fsync=off" start > /dev/null
    POSTGRES_USER=postgres /docker-entrypoint-initdb.d/postgres-init.sh
    pg_ctl -w -m fast stop > /dev/null
fi
exec postgres -c listen_addresses=* -c fsync=off
"""


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """Replace ${NAME:-default} and ${NAME:?message} as Compose does."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if variables.get(name):
            return variables[name]
        assert kind == ":-", f"{name}: {rest}"
        return rest

    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, text)


class Containers:
    """A copy of the compose file and of docker/ in `folder`, prepared for `runs`, and its services."""

    def __init__(self, folder: Path, *, runs: Path, profile: str = "cpu") -> None:
        requires_namespaces()
        self._programs = requires_binary("initdb", "postgresql").parent
        self.folder = folder
        shutil.copytree(PROJECT / "docker", folder / "docker", ignore=shutil.ignore_patterns("secrets"))
        shutil.copy(PROJECT / "docker-compose.yml", folder)
        subprocess.run([folder / "docker/prepare.sh", profile, runs], check=True, stdout=subprocess.DEVNULL)
        with (folder / ".env").open("a") as settings:
            settings.write("MLFLOW_WORKERS=1\n")  # each takes seconds of a core to start
        self.settings = dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())
        text = interpolated((folder / "docker-compose.yml").read_text(), self.settings)
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
        self._users = USERS | {"": (int(self.settings["TRACKER_UID"]), int(self.settings["TRACKER_GID"]))}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        command = ["unshare", "--net", sys.executable, "-S", "-I", "-c", NETWORK]
        self._network = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == b"up\n"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for service in [*self._running][::-1]:
            self.stop(service, kill=True)
        self._network.kill()
        self._network.communicate()

    def up(self, *services: str) -> None:
        """Start services and, healthy first, what they depend on."""
        for service in services:
            for needed, how in self.services[service].get("depends_on", {}).items():
                assert how == {"condition": "service_healthy"}
                self.up(needed)
                self.until(partial(self.is_healthy, needed), f"{needed} is healthy", every_s=1.0)
            if service not in self._running:
                self.start(service)

    def start(self, service: str) -> None:
        """Start one service, whatever it depends on; what it says goes to its log."""
        command = self._command(service)
        with (self.folder / f"{service}.log").open("ab") as log:
            self._running[service] = subprocess.Popen(
                self._contained(service, command), stdout=log, stderr=log, start_new_session=True
            )

    def stop(self, service: str, *, kill: bool = False) -> int:
        """Stop a service as Docker does, with all its processes; return its exit code."""
        process = self._running[service]
        if kill:
            process.kill()
        else:
            self.ask_to_stop(service)
        del self._running[service]
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        for left in self.processes(service):
            with suppress(psutil.NoSuchProcess):
                left.kill()
        return process.wait(PATIENCE_S)

    def ask_to_stop(self, service: str) -> None:
        """Send the image's signal to a service and return at once."""
        self._running[service].send_signal(signal.SIGINT if service == "postgres" else signal.SIGTERM)

    def processes(self, service: str) -> list[psutil.Process]:
        """Return the processes in the service's root, however they were started."""
        root = self.folder / f"{service}.root"
        return [process for process in psutil.process_iter() if _root_of(process.pid) == root]

    def has_ended(self, service: str) -> bool:
        return self._running[service].poll() is not None

    def run(self, service: str, *command: str, code: int = 0, said: str = "") -> str:
        """Run a command in a service that runs, else in a new one; return what it says. It must end with `code`."""
        command_line = self._beside(service, command)
        result = subprocess.run(
            command_line, input=said, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout if code == 0 else result.stdout + result.stderr

    def once(self, service: str, *, code: int = 0) -> str:
        """Run a service that ends by itself, with `code`; return what it says."""
        return self.run(service, *self._command(service), code=code)

    def is_healthy(self, service: str) -> bool:
        """Run its health check; moto has no page for that, and is asked whether it answers."""
        how, *test = self.services[service]["healthcheck"]["test"]
        assert how == "CMD"
        if service == "objects":
            test = ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8333/moto-api/')"]
        return subprocess.run(self._beside(service, test), capture_output=True, check=False).returncode == 0

    def said(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def until(self, condition: Any, what: str, *, every_s: float = 0.2) -> None:
        waited = threading.Event()
        for _ in range(int(PATIENCE_S / every_s)):
            if condition():
                return
            waited.wait(every_s)
        logs = "\n".join(f"{path.name}: {path.read_text()}" for path in self.folder.glob("*.log"))
        pytest.fail(f"waited in vain until {what}\n{logs}")

    # --- private

    def _command(self, service: str) -> Sequence[str]:
        known = self.services[service]
        if service == "postgres":
            return ["sh", "-euc", POSTGRES]
        if service == "objects":
            return ["moto_server", "-H", "0.0.0.0", "-p", "8333"]
        return [*known.get("entrypoint", ["tracker"]), *known.get("command", [])]

    def _contained(self, service: str, command: Sequence[str]) -> list[str]:
        script = "\n".join(self._script(service))
        network = f"--net=/proc/{self._network.pid}/ns/net"
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return ["nsenter", network, *unshare, "sh", "-euc", script, "sh", *command]

    def _beside(self, service: str, command: Sequence[str]) -> list[str]:
        """Return the command in the namespaces and the root of a service that runs."""
        if service not in self._running or _root_of(self._running[service].pid) != self.folder / f"{service}.root":
            return self._contained(service, command)
        of = f"/proc/{self._running[service].pid}"
        return [
            "nsenter",
            f"--net={of}/ns/net",
            f"--mount={of}/ns/mnt",
            f"--root={of}/root",
            *self._as(service),
            *command,
        ]

    def _as(self, service: str) -> list[str]:
        """Return what runs a command as the service's user, without rights, with its environment alone."""
        known = self.services[service]
        uid, gid = self._users["moto" if service == "objects" else known.get("user", "")]
        rights = ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        variables = [f"{name}={value}" for name, value in self._environment(known).items()]
        return ["setpriv", f"--reuid={uid}", f"--regid={gid}", *rights, "env", "-i", "-C", "/cache", *variables]

    def _script(self, service: str) -> Iterator[str]:
        """Yield the lines of a script that makes the service's root and becomes the command in its arguments."""
        known = self.services[service]
        uid, gid = self._users["moto" if service == "objects" else known.get("user", "")]
        root = self.folder / f"{service}.root"
        root.mkdir(exist_ok=True)
        yield f"cd / && mount -t tmpfs -o mode=755 tmpfs {root}"
        yield from (_shown(path, root) for path in SYSTEM)
        yield f"mkdir -p {root}/var {root}/run/secrets {root}/opt/docker {root}/cache"
        yield f"mkdir -m 1777 {root}/tmp"  # noqa: S108 - of each service
        yield f"chown {uid}:{gid} {root}/cache"
        for name, target in LINKS.items():
            yield f"ln -s {target} {root}/{name}"
        for name in ("tracker", "vllm"):
            yield f"ln -s {PROJECT}/.venv {root}/opt/{name}"
        yield from self._own_files(root)
        for source, target, mode in [*_image_files(self.folder), *self._mounts(known)]:
            if not source.exists():  # a named volume begins as what the image holds there
                source.mkdir(parents=True)
                os.chown(source, uid, gid)
            yield _bound(source, f"{root}{target}", mode)
        for mount in (f"{SHARED_MEMORY}:exec,mode=1777,size={known.get('shm_size', '64m')}", *known.get("tmpfs", ())):
            path, _, options = mount.partition(":")
            usual = "" if "exec" in options else "noexec,"
            yield f"mkdir -p {root}{path} && mount -t tmpfs -o {usual}{options.replace('exec,', '')} tmpfs {root}{path}"
        yield from (_shown(path, root) for path in (sys.base_prefix, str(PROJECT)))  # a checkout may lie below /tmp
        if known.get("read_only"):
            yield f"mount -o remount,ro {root}"
        yield f'exec chroot {root} {shlex.join(self._as(service))} "$@"'

    def _own_files(self, root: Path) -> Iterator[str]:
        """Yield what makes the names of services and users known."""
        ours = self.folder / "etc"
        ours.mkdir(exist_ok=True)
        (ours / "hosts").write_text(f"127.0.0.1 localhost {' '.join(self.services)}\n")
        for name, form in (("passwd", "{0}:x:{1}:{2}::/cache:/bin/sh"), ("group", "{0}:x:{2}:")):
            lines = [line for line in Path("/etc", name).read_text().splitlines() if not line.startswith("postgres:")]
            lines += [form.format(user or "tracker", *ids) for user, ids in self._users.items()]
            (ours / name).write_text("\n".join(lines) + "\n")
        for name in ("hosts", "passwd", "group"):
            yield f"mount --bind {ours / name} {root}/etc/{name}"

    def _mounts(self, known: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
        for secret in known.get("secrets", ()):
            named = secret if isinstance(secret, dict) else {"source": secret, "target": secret}
            yield self.folder / "docker/secrets" / named["source"], f"/run/secrets/{named['target']}", "ro"
        for volume in known.get("volumes", ()):
            source, target, *mode = volume.split(":")
            is_path = source.startswith((".", "/"))
            path = self.folder / source if is_path else self.folder / "volumes" / source
            yield path, target, "".join(mode) or "rw"

    def _environment(self, known: Mapping[str, Any]) -> dict[str, str]:
        path = f"/opt/tracker/bin:{self._programs}:/usr/sbin:/usr/bin"
        image = {
            "PATH": path,
            "HOME": "/cache",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
        }
        given: dict[str, str] = known.get("environment", {})
        return image | {"PGDATA": "/var/lib/postgresql/data"} | given


# --- private


def _image_files(folder: Path) -> Iterator[tuple[Path, str, str]]:
    for name in ("mlflow_server.py", "mlflow-auth.ini"):
        yield folder / "docker" / name, f"/opt/docker/{name}", "ro"


def _root_of(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/root").readlink()
    except OSError:  # it has ended
        return None


def _shown(path: str, root: Path) -> str:
    return f"mkdir -p {root}{path} && mount --rbind {path} {root}{path} && mount -o remount,bind,ro {root}{path}"


def _bound(source: Path, target: str, mode: str) -> str:
    make = f"mkdir -p {target}" if source.is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
    return f"{make} && mount --bind {source} {target} && mount -o remount,bind,{mode} {target}"


@contextmanager
def stopped(site: Containers, service: str) -> Iterator[None]:
    """Have one service away for a while."""
    site.stop(service)
    yield
    site.start(service)
