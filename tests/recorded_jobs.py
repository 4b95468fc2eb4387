"""Real jobs of two ranks, healthy and hung, as they were recorded in tests/golden/hung_jobs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracker.adapters.processes.stacks import parsed_stack
from tracker.domain.health.processes.ranks import Moment
from tracker.domain.health.processes.seen import ProcessId, ProcessState, Sample, SeenProcess

RECORDED = Path(__file__).parent / "golden" / "hung_jobs"
_STATES = {"R": ProcessState.RUNNING, "S": ProcessState.SLEEPING, "D": ProcessState.BLOCKED, "Z": ProcessState.ZOMBIE}
_NAMES = re.compile(r"rank(\d+)(-worker\d+)?")


def moments(case: str) -> list[Moment]:
    """Return the three samples of a case."""
    return [_moment(sample) for sample in _recorded(case)["samples"]]


def processes(case: str) -> dict[str, SeenProcess]:
    """Return its processes, by the names of the recording."""
    sample = _recorded(case)["samples"][0]
    return {name: _process(name, one["facts"]) for name, one in sample["processes"].items()}


def _recorded(case: str) -> Any:
    return json.loads((RECORDED / f"{case}.json").read_text())


def _moment(sample: Any) -> Moment:
    ranks: dict[int, Sample] = {}
    loaders: dict[int, tuple[Sample, ...]] = {}
    for name, one in sample["processes"].items():
        rank, worker = _place(name)
        if worker:
            loaders[rank] = (*loaders.get(rank, ()), _sample(one))
        else:
            ranks[rank] = _sample(one)
    return Moment(at_s=sample["at_s"], ranks=ranks, loaders=loaders)


def _place(name: str) -> tuple[int, bool]:
    found = _NAMES.fullmatch(name)
    assert found is not None, name
    return int(found[1]), found[2] is not None


def _sample(one: Any) -> Sample:
    facts = one["facts"]
    if facts is None or facts.get("state") is None:
        return Sample(state=ProcessState.GONE)
    moved = facts.get("io_counters") or {}
    threads = one["py_spy"].get("threads")
    return Sample(
        state=_STATES.get(facts["state"], ProcessState.STOPPED),
        cpu_s=facts["cpu_user_s"] + facts["cpu_system_s"],
        moved_bytes=moved["read_chars"] + moved["write_chars"] if moved else None,
        waits_in="" if facts["wchan"] == "0" else facts["wchan"],
        stack=None if threads is None else parsed_stack(json.dumps(threads).encode(), facts["pid"]),
    )


def _process(name: str, facts: Any) -> SeenProcess:
    return SeenProcess(
        id=ProcessId(pid=facts["pid"], created_s=facts["create_time"]),
        parent=facts["ppid"],
        name="pt_data_worker" if "worker" in name else "python",
        arguments=tuple(facts["cmdline"]) if isinstance(facts["cmdline"], list) else (),
        folder="/app",
        variables=facts["environ"] if isinstance(facts["environ"], dict) else {},
    )


def cases() -> Iterator[str]:
    """Yield the names of all recordings."""
    for path in sorted(RECORDED.glob("*.json")):
        yield path.stem
