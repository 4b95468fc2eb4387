"""Kill everything, again and again, and count what is lost, doubled, misread or left behind.

    python -m benchmarks.chaos --kills 300 --seed 1
    python -m benchmarks.chaos --kills 100 --database postgresql
    python -m benchmarks.chaos --kills 20 --seed 17     # round 17 again
    python -m benchmarks.chaos --kills 6 --engine vllm  # a real one, on a tiny model: minutes a round

Each round is a training run of seven checkpoints beside a real `tracker watch`, with its workers, evaluators, probers,
engines and MLflow store. Processes are killed with SIGKILL or stopped for longer than their lease at random moments,
or die at random lines. Then everything is started once more, and what came out is held against an undisturbed round.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.killing.audit import Seen, Verdict, audit, look
from benchmarks.killing.place import Place, Setting
from benchmarks.killing.postgres import make_cluster
from benchmarks.killing.storm import Line, Storm

KILLS_PER_ROUND = 20


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What all rounds share."""

    folder: Path
    reference: Seen | None
    """None with a real engine: the trainer's script alone says what must be there."""
    lines: list[Line]
    cluster: Path | None
    keep: Path | None
    real_engine: bool

    def round(self, seed: int, kills: int) -> dict[str, int]:
        """Run one round, show what came out and return the counts."""
        setting = Setting(
            cluster=self.cluster,
            has_mlflow_server=seed % 4 == 0,
            has_standby=seed % 3 == 0,
            has_second_worker=seed % 5 == 0,
            real_engine=self.real_engine,
        )
        place = Place(home=self.folder / str(seed), setting=setting)
        storm = Storm(place=place, chance=random.Random(seed), lines=self.lines)  # noqa: S311 - a game of chance
        begun_s = time.monotonic()
        try:
            verdict = self._judged(storm, kills)
            counts = {"kills": storm.kills} | verdict.counts()
            _show(seed, verdict, storm, time.monotonic() - begun_s)
            if self.keep is not None and any(verdict.counts().values()):
                (place.home / "storm.log").write_text("\n".join(storm.log))
                shutil.copytree(place.home, self.keep / str(seed), symlinks=True, dirs_exist_ok=True)
        finally:
            place.stop_all()
        shutil.rmtree(place.home, ignore_errors=True)
        return counts

    def _judged(self, storm: Storm, kills: int) -> Verdict:
        place = storm.place
        place.prepare()
        storm.rage(kills)
        trouble = storm.calm()
        seen = look(place)
        place.stop_services()
        verdict = audit(place, seen, self.reference)
        verdict.lost += [trouble] if trouble else []
        return verdict


def begin(folder: Path, *, database: str = "sqlite", keep: Path | None = None, real_engine: bool = False) -> Campaign:
    """Prepare a campaign; with the stand-in that is a round in which nobody dies, of which every line is noted."""
    folder.chmod(0o755)  # for the database's own user
    cluster = folder / "cluster" if database == "postgresql" else None
    if cluster is not None:
        make_cluster(cluster)
    reference, lines = (None, []) if real_engine else _undisturbed(folder)
    return Campaign(
        folder=folder, reference=reference, lines=lines, cluster=cluster, keep=keep, real_engine=real_engine
    )


def main() -> int:
    """Run the campaign that the command line asks for; return the exit code."""
    options = _parse()
    total: Counter[str] = Counter()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        real = options.engine == "vllm"
        campaign = begin(Path(name), database=options.database, keep=options.keep, real_engine=real)
        seed = options.seed
        while total["kills"] < options.kills:
            total += Counter(campaign.round(seed, min(KILLS_PER_ROUND, options.kills - total["kills"])))
            seed += 1
    names = ("kills", "lost", "doubled", "misread", "orphans")
    print(" ".join(f"{name}={total[name]}" for name in names), f"({time.monotonic() - begun_s:.0f} s)")
    return int(any(total[name] for name in names[1:]))


# --- private


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--engine", choices=("stand-in", "vllm"), default="stand-in")
    parser.add_argument("--keep", type=Path, help="folder for the remains of rounds that went wrong")
    return parser.parse_args()


def _undisturbed(folder: Path) -> tuple[Seen, list[Line]]:
    """Run one round in which nobody dies; return what it left and every line that it ran."""
    place = Place(home=folder / "0")
    place.prepare()
    (place.home / "lines").mkdir()
    storm = Storm(place=place, chance=random.Random(0), lines=())  # noqa: S311
    begun_s = time.monotonic()
    try:
        storm.rage(0)
        trouble = storm.calm()
        seen = look(place)
        verdict = audit(place, seen, None)
    finally:
        place.stop_all()
    verdict.lost += [trouble] if trouble else []
    _show(0, verdict, storm, time.monotonic() - begun_s)
    if any(verdict.counts().values()):
        sys.exit("the undisturbed round went wrong: nothing can be held against it")
    lines = set()
    for path in (place.home / "lines").iterdir():
        role = path.name.partition("-")[0]
        lines |= {(role, *line.rsplit(":", 1)) for line in path.read_text().split()}
    return seen, sorted((role, file, int(number)) for role, file, number in lines)


def _show(seed: int, verdict: Verdict, storm: Storm, took_s: float) -> None:
    counts = " ".join(f"{name}={n}" for name, n in verdict.counts().items())
    print(f"round {seed}: kills={storm.kills} {counts} in {took_s:.0f} s", flush=True)
    victims = ", ".join(f"{role} {n}" for role, n in storm.victims.most_common())
    print(f"    killed: {victims or 'nobody'}", flush=True)
    for name, sentences in vars(verdict).items():
        for sentence in sentences[:5]:
            print(f"    {name}: {sentence}", flush=True)
    if any(verdict.counts().values()):
        print("    " + "; ".join(storm.log), flush=True)


if __name__ == "__main__":
    sys.exit(main())
