"""Kill everything, again and again, and count what is lost, doubled, misread or left behind.

    python -m benchmarks.chaos --kills 300 --seed 1
    python -m benchmarks.chaos --round 17          # one round again

Each round is a training run of seven checkpoints beside a real `tracker watch`, with its workers, evaluators, probers,
engines and MLflow store. Processes are killed with SIGKILL or stopped for longer than their lease at random moments,
or die at random lines. Then everything is started once more, and what came out is held against an undisturbed round.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.chaos.audit import Seen, Verdict, audit, look
from benchmarks.chaos.place import Place, Setting
from benchmarks.chaos.storm import Line, Storm

KILLS_PER_ROUND = 20


def main() -> None:
    """Run the campaign that the command line asks for."""
    options = _parse()
    total: Counter[str] = Counter()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        reference, lines = _undisturbed(Path(name))
        seed = options.seed
        while total["kills"] < options.kills:
            kills = min(KILLS_PER_ROUND, options.kills - total["kills"])
            total += Counter(_round(Path(name) / str(seed), seed, kills, reference, lines, keep=options.keep))
            seed += 1
    names = ("kills", "lost", "doubled", "misread", "orphans")
    print(" ".join(f"{name}={total[name]}" for name in names), f"({time.monotonic() - begun_s:.0f} s)")


# --- private


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the remains of rounds that went wrong")
    return parser.parse_args()


def _undisturbed(folder: Path) -> tuple[Seen, list[Line]]:
    """Run one round in which nobody dies; return what it left and every line that it ran."""
    place = Place(home=folder / "0")
    place.prepare()
    (place.home / "lines").mkdir()
    storm = Storm(place=place, chance=random.Random(0), lines=())  # noqa: S311
    begun_s = time.monotonic()
    storm.rage(0)
    trouble = storm.calm()
    seen = look(place)
    verdict = audit(place, seen, None)
    _show(0, 0, verdict, trouble, storm, time.monotonic() - begun_s)
    lines = set()
    for path in (place.home / "lines").iterdir():
        role = path.name.partition("-")[0]
        lines |= {(role, *line.rsplit(":", 1)) for line in path.read_text().split()}
    return seen, sorted((role, file, int(number)) for role, file, number in lines)


def _round(
    home: Path, seed: int, kills: int, reference: Seen, lines: list[Line], *, keep: Path | None
) -> dict[str, int]:
    chance = random.Random(seed)  # noqa: S311 - a game of chance
    place = Place(home=home, setting=Setting())
    place.prepare()
    storm = Storm(place=place, chance=chance, lines=lines)
    begun_s = time.monotonic()
    storm.rage(kills)
    trouble = storm.calm()
    verdict = audit(place, look(place), reference)
    _show(seed, storm.kills, verdict, trouble, storm, time.monotonic() - begun_s)
    if keep is not None and (any(verdict.counts().values()) or trouble):
        (home / "storm.log").write_text("\n".join(storm.log))
        shutil.copytree(home, keep / str(seed), symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    return {"kills": storm.kills} | verdict.counts()


def _show(seed: int, kills: int, verdict: Verdict, trouble: str, storm: Storm, took_s: float) -> None:
    counts = " ".join(f"{name}={n}" for name, n in verdict.counts().items())
    print(f"round {seed}: kills={kills} {counts} in {took_s:.0f} s {trouble}", flush=True)
    for name, sentences in vars(verdict).items():
        for sentence in sentences[:5]:
            print(f"    {name}: {sentence}", flush=True)
    if any(verdict.counts().values()) or trouble:
        print("    " + "; ".join(storm.log), flush=True)


if __name__ == "__main__":
    main()
