"""One round: a training run and its tracker, of which random processes are killed or stopped at random moments."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from benchmarks.killing import postgres
from benchmarks.killing.people import Person, everybody
from benchmarks.killing.place import Place
from benchmarks.killing.trainer import KEEP, WEIGHTS, hash_of_weights, script_of, write_number
from eval_jobs.errors import ExitCode
from eval_jobs.queue.database_sql import open_database

PATIENCE_S = 180.0
SEEN_S = 60.0
"""A checkpoint with a watcher beside it for so long without a break has existed long enough, on a busy machine too."""
WEIGHT_OF = {
    "watcher": 3,
    "worker": 4,
    "evaluator": 4,
    "engine": 4,
    "prober": 3,
    "agent": 2,
    "trainer": 2,
    "mlflow": 2,
    "database": 3,
}
OF_REAL_ENGINE = 12
"""Weight of each of vLLM's three processes."""
PAUSE_SHARE = 0.12
PAUSES_S = (0.5, 8.0)
EVERYBODY_SHARE = 0.06
BETWEEN_S = (0.2, 2.5)
REAL_ENGINE_SLOWER = 10.0
"""How much longer a real engine takes to start than the stand-in and all around it."""

Line = tuple[str, str, int]
"""Role, file and number."""


@dataclass(kw_only=True)
class Storm:
    """What happens to the processes of one place."""

    place: Place
    chance: random.Random
    lines: Sequence[Line]
    """Where bombs may go off."""
    log: list[str] = field(default_factory=list)
    _killed: Counter[str] = field(default_factory=Counter)
    _stopped: list[tuple[float, int]] = field(default_factory=list)
    _bombs: int = 0
    _next_s: float = 0.0
    _engine: Engine | None = None
    _watched: tuple[int, float] = (0, 0.0)
    """Pid of the watcher and since when it lives."""

    @property
    def victims(self) -> Counter[str]:
        """How many processes of each role died of it so far: by a signal of ours or by a bomb."""
        fired = self.place.home / "fired.log"
        bombed = fired.read_text().splitlines() if fired.is_file() else ()
        return self._killed + Counter(line.partition(" ")[0] for line in bombed)

    @property
    def kills(self) -> int:
        """How many processes died of it so far."""
        return self.victims.total()

    def rage(self, kills: int) -> None:
        """Let the trainer go through its script and strike until `kills` processes are dead or all is done."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < self._patience_s and not (self.place.has_trained and self.kills >= kills):
            if self.place.has_trained and not self._has_work():
                break
            self.place.keep_running()
            self._allow_next_save()
            self._wake_the_stopped()
            if self.kills < kills and time.monotonic() >= self._next_s:
                self._strike()
                self._next_s = time.monotonic() + self._slower * self.chance.uniform(*BETWEEN_S)
            time.sleep(0.05)

    def calm(self) -> str:
        """Start everything once more and let it finish; return what went wrong, "" for nothing."""
        self._wake_the_stopped(at_once=True)
        for path in (self.place.home / "bombs").glob("*.json"):
            path.unlink()
        begun_s = time.monotonic()
        while not self.place.has_trained and time.monotonic() - begun_s < self._patience_s:
            self.place.keep_running()
            self._allow_next_save()
            time.sleep(0.05)
        for name in ("watcher", "standby", "worker"):
            self.place.stop(name)
        for _ in range(3):
            self.place.keep_running_services()
            try:
                code = self.place.keep_watching("--until-idle").wait(self._patience_s)
            except subprocess.TimeoutExpired:
                return f"the last watcher did not end within {self._patience_s:.0f} s"
            if not self._unsent():
                is_done = code in (ExitCode.OK, ExitCode.UNKNOWN)  # what was deleted early has no result
                return "" if is_done else f"the last watcher ended with exit code {code}"
        return "results still wait for MLflow"

    # --- private

    @property
    def _slower(self) -> float:
        return REAL_ENGINE_SLOWER if self.place.setting.real_engine else 1.0

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S * self._slower

    # --- private: the trainer

    def _allow_next_save(self) -> None:
        """Let the trainer save again once whatever that will destroy is held, or had its time."""
        saved = self.place.saved
        script = script_of(real=self.place.setting.real_engine)
        if saved >= len(script):
            return
        process = self.place.running.get("watcher")
        pid = process.pid if process is not None and process.poll() is None else 0
        if pid != self._watched[0]:
            self._watched = (pid, time.monotonic())
        done = [save for save in script[:saved] if not save.dies]
        again = [save for save in done if save.step == script[saved].step]
        doomed = [*done[: max(0, len(done) - KEEP + 1)], *again]
        real = self.place.setting.real_engine
        held, published = _held_hashes(self.place.state, "*"), _held_hashes(self.place.state, "step-*")
        is_held = all(hash_of_weights(s.seed, real=real) in (published if s.resumes else held) for s in doomed)
        had_time = pid != 0 and time.monotonic() - self._watched[1] > SEEN_S
        if is_held or had_time:
            write_number(self.place.home / "allowed", saved + 1)

    # --- private: striking

    def _strike(self) -> None:
        people = [p for p in everybody(self.place.home) if p.role in WEIGHT_OF]
        if self.place.setting.real_engine and not any(p.role == "engine" for p in people):
            return  # else all kills are over before the first one has started
        if self.chance.random() < EVERYBODY_SHARE:
            victims = [p for p in people if p.role not in ("mlflow", "database")]
            for victim in victims:
                self._kill(victim, "everybody")
            return
        if self.lines and self.chance.random() < 0.4:
            self._lay_bomb()
        if not people:
            return
        weights = WEIGHT_OF | ({"engine": OF_REAL_ENGINE} if self.place.setting.real_engine else {})
        victim = self.chance.choices(people, [weights[p.role] for p in people])[0]
        if self.chance.random() < PAUSE_SHARE and victim.role != "trainer":
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGSTOP)
                pause_s = self.chance.uniform(*PAUSES_S)
                self._stopped.append((time.monotonic() + pause_s, victim.pid))
                self.log.append(f"{victim.role} {victim.pid} is stopped for {pause_s:.1f} s")
        else:
            self._kill(victim, "alone")

    def _kill(self, victim: Person, how: str) -> None:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
            self._killed[victim.role] += 1
            self.log.append(f"{victim.role} {victim.pid} killed {how}")

    def _lay_bomb(self) -> None:
        role, file, number = self.chance.choice(self.lines)
        self._bombs += 1
        bomb = {"file": file, "line": number, "nth": self.chance.choice((1, 1, 1, 2, 3, 7))}
        draft = self.place.home / "bombs" / ".draft"
        draft.write_text(json.dumps(bomb))
        draft.replace(self.place.home / "bombs" / f"{role}-{self._bombs:04d}.json")

    def _wake_the_stopped(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        for _, pid in (entry for entry in self._stopped if at_once or entry[0] <= now_s):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = [entry for entry in self._stopped if not at_once and entry[0] > now_s]

    # --- private: the database

    def _has_work(self) -> bool:
        return self._number("SELECT count(*) FROM eval_plans WHERE state <> 'acknowledged'") > 0

    def _unsent(self) -> bool:
        return self._number("SELECT count(*) FROM outbox_items WHERE NOT sent") > 0

    def _number(self, query: str) -> int:
        url = postgres.url_of(self.place.database_port) if self.place.database_port else ""
        path = self.place.state / "tracker.db"
        if not url and not path.is_file():
            return 0
        if self._engine is None:
            self._engine = open_database(url or f"sqlite:///{path}")
        try:
            with self._engine.connect() as connection:
                return connection.scalar(text(query)) or 0
        except DBAPIError:  # no such table yet, or no database
            return 0


_HASHES: dict[tuple[int, int, int], str] = {}


def _held_hashes(state: Path, pattern: str) -> set[str]:
    """Return the hashes of the weights of every pin that a killed watcher would find again."""
    found = set()
    for manifest in state.glob(f"pins/*/{pattern}/.pin.json"):
        with suppress(OSError):
            path = manifest.parent / WEIGHTS
            status = path.stat()
            key = (status.st_ino, status.st_mtime_ns, status.st_size)
            if key not in _HASHES:
                _HASHES[key] = hashlib.sha256(path.read_bytes()).hexdigest()
            found.add(_HASHES[key])
    return found
