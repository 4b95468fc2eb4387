"""One checkpoint's way around, as a script goes it and as the tracker does, and where every second of it goes.

    python -m benchmarks.loop_time [--checkpoints 8] [--script 3] [--large] [--growth N] [--keep FOLDER]

A trainer saves a checkpoint, the tracker (`tracker watch` with its worker, evaluator, probe, engine and MLflow store)
measures, judges and publishes it, then the next one is saved. Before that the same checkpoints go through the script
that people write: vLLM started anew, `evalscope eval`, `vllm bench serve`, MLflow. The floor is what the same requests
take from a bare client on the same engine, a moment after each checkpoint. Then a trainer runs beside the idle tracker,
in turn with the tracker stopped.

--large: a model of 543 MB, five checkpoints, without the script.
--growth: nothing but the memory of our processes over so many checkpoints, on a stand-in of an engine.
The last line is `speedup=... over_floor=... first_token_s=... step_time_change=...`, from the second checkpoint on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.looping import beside, script_way
from benchmarks.looping.bare import Floor, measure_apart
from benchmarks.looping.growth import measure_growth
from benchmarks.looping.large_model import write_large
from benchmarks.looping.material import Workload, save_checkpoint
from benchmarks.looping.stages import stages_of
from benchmarks.looping.tracker_way import Passage, watched

IDLE_S = 20.0


@dataclass(kw_only=True)
class Measured:
    """Everything that goes into the table."""

    script: list[Mapping[str, float]] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    stages: list[Mapping[str, float]] = field(default_factory=list)
    """Seconds of each stage of the tracker's way."""
    methods: list[str] = field(default_factory=list)
    """How the weights got into the engine."""
    memory_mb: dict[str, float] = field(default_factory=dict)
    """Of each role, right after the last checkpoint."""
    rest_mb: dict[str, float] = field(default_factory=dict)
    """After a minute in which nothing happened."""
    idle: dict[str, float] = field(default_factory=dict)
    change: beside.Change | None = None


def main() -> None:
    arguments = _arguments()
    workload = Workload(concurrency=arguments.concurrency, max_tokens=arguments.max_tokens)
    measured = Measured()
    with _folder(arguments.keep) as home:
        if arguments.growth:
            measure_growth(home / "growth", workload, arguments.growth)
            return
        model = write_large(home / "model") if arguments.large else None
        for number in range(1, arguments.script + 1):
            saved = save_checkpoint(home / "script", number, model=model)
            print(f"script: checkpoint {number}", file=sys.stderr)
            measured.script.append(script_way.measure(saved.folder, workload, home / f"script-{number}"))
        _follow(home, workload, measured, arguments, model)
    show(measured)


def show(measured: Measured) -> None:
    """Print the tables and the last line."""
    later = measured.stages[1:] or measured.stages
    if measured.script:
        _table("the script, a checkpoint", measured.script, measured.script)
    _table("the tracker: first checkpoint, later ones", measured.stages[:1], later)
    if measured.floors:
        for name in ("scoring_s", "probe_s", "total_s"):
            seconds = [getattr(floor, name) for floor in measured.floors]
            print(f"  {'pure generation: ' + name:34} {statistics.median(seconds):8.2f} s")
    for name, values in (("answered", "until the first answer"), ("sent", "until judged and in MLflow")):
        print(f"  {values:34} " + " ".join(f"{passage.at_s[name]:.2f}" for passage in measured.passages) + " s")
    print(
        f"  {'pure generation, beside that':34} " + " ".join(f"{floor.total_s:.2f}" for floor in measured.floors) + " s"
    )
    print(f"  {'weights loaded by':34} {' '.join(measured.methods)}")
    for title, sizes in (("memory (MB)", measured.memory_mb), ("at rest (MB)", measured.rest_mb)):
        ours = sum(size for role, size in sizes.items() if role != "engine")
        print(f"{title}: {ours:.0f} without the engine; " + ", ".join(f"{r} {size:.0f}" for r, size in sizes.items()))
    print("idle (share of a core): " + ", ".join(f"{role} {share:.2%}" for role, share in measured.idle.items()))
    if measured.change is not None:
        change = measured.change
        print(
            f"a trainer's step: {change.step_ms:.1f} ms, {change.mean:+.2%} ({change.low:+.2%} to {change.high:+.2%})"
        )
    print(_last_line(measured))


# --- private


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=8)
    parser.add_argument("--script", type=int, default=3, help="checkpoints that go through the script")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of blocks of the trainer; 0: none")
    parser.add_argument("--concurrency", type=int, default=Workload.concurrency)
    parser.add_argument("--max-tokens", type=int, default=Workload.max_tokens)
    parser.add_argument("--large", action="store_true", help="a model of 543 MB, five checkpoints, no script")
    parser.add_argument("--growth", type=int, default=0, metavar="N", help="memory over so many checkpoints, no more")
    parser.add_argument("--keep", type=Path, help="folder to work in, which is kept")
    arguments = parser.parse_args()
    if arguments.large:
        arguments.checkpoints, arguments.script, arguments.pairs = 5, 0, 0
    return arguments


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="loop-time-") as name:
            yield Path(name)
    else:
        keep.mkdir(parents=True)
        yield keep.absolute()


def _follow(
    home: Path, workload: Workload, measured: Measured, arguments: argparse.Namespace, model: Path | None
) -> None:
    """Let the tracker watch while checkpoints are saved, then measure what it costs while nothing happens."""
    (home / "project").mkdir()
    with watched(home / "project", workload) as run:
        for number in range(1, arguments.checkpoints + 1):
            saved = save_checkpoint(run.output_dir, number, model=model)
            measured.passages.append(run.follow(saved.step, saved.at_s))
            if not arguments.large:
                measured.floors.append(measure_apart(*run.engine(), workload))
            print(f"tracker: step {saved.step}, {measured.passages[-1].at_s['sent']:.2f} s", file=sys.stderr)
        tree = run.tree()
        measured.memory_mb = beside.memory_mb(tree)
        measured.idle = beside.idle_shares(tree, IDLE_S)
        if arguments.pairs:
            measured.change = beside.step_time_change(tree, arguments.pairs)
            measured.rest_mb = beside.memory_mb(run.tree())
        records = run.records()
    for passage in measured.passages:
        record = records[passage.step]
        measured.stages.append(stages_of(passage, record))
        measured.methods.append(record.engine.load_method if record.engine else "none")


def _table(title: str, first: Sequence[Mapping[str, float]], later: Sequence[Mapping[str, float]]) -> None:
    print(title)
    for name in first[0]:
        print(f"  {name:34} {_median(first, name):8.2f} {_median(later, name):8.2f} s")
    print(f"  {'together':34} {_total(first):8.2f} {_total(later):8.2f} s")


def _last_line(measured: Measured) -> str:
    later = measured.passages[1:] or measured.passages
    whole_s = statistics.median(passage.at_s["sent"] for passage in later)
    first_s = statistics.median(passage.at_s["answered"] for passage in later)
    speedup = _total(measured.script) / whole_s if measured.script else float("nan")
    # Each beside its own floor, measured on the same engine a moment later: the machine's pace changes.
    over = [
        passage.at_s["sent"] / floor.total_s for passage, floor in zip(measured.passages, measured.floors, strict=False)
    ]
    over_floor = statistics.median(over[1:] or over) if over else float("nan")
    change = f"{measured.change.mean:+.2%}" if measured.change else "-"
    times = f"speedup={speedup:.1f} over_floor={over_floor:.2f} first_token_s={first_s:.2f}"
    return f"{times} step_time_change={change}"


def _median(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _total(rows: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(sum(row.values()) for row in rows)


if __name__ == "__main__":
    main()
