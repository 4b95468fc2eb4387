"""A kill -9 at every statement of tick, review and the worker's loop, and what the next start makes of it.

One small world after the other (`tests.small_world`) is started again and again with a bomb at the next line, until it
has had a few; then it lives on, and everything that it left is compared. Lines below those are drawn by lot, and so are
the statements, but in a deep run.
"""

import ast
import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.killing.inside import Bomb
from tests import small_world
from tests.deep import sized
from tests.forking import FRESH
from tests.requires import PROJECT

pytestmark = pytest.mark.timeout(900)

LOOPS = {
    "tracker/app/tick.py": None,
    "tracker/app/plans.py": ("plans_for", "first_plans", "is_baseline"),
    "tracker/app/gaps.py": None,
    "tracker/app/review.py": None,
    "tracker/app/daemon.py": None,
    "tracker/app/news.py": None,
    "tracker/app/health/follow.py": None,
    "tracker/app/health/notices.py": None,
    "eval_jobs/execute/worker/heartbeat.py": None,
    "eval_jobs/execute/worker/main.py": (
        "work",
        "carry_out",
        "_next_claim",
        "_attempt",
        "_hand_in",
        "_give_back",
        "_forget_what_is_done",
    ),
}
"""Files of which every statement is deadly once, and of which functions; None: all. Others are for commands."""
HANDED_IN, FORGOTTEN = "worker.tools.evaluator.forget(claim.plan.id)", "evaluator.forget(plan_id)"
CONCLUDED, RESUMED = "alerts = _alerts_of(report, neighbours.later, world.history)", "return stored"
RECORDED, JUDGED_AGAIN = "world.history.append_reports(report, *renewed", "scores = world.history.scores(cause.run_id)"
AFTER_A_KILL = (FORGOTTEN, RESUMED)
"""Statements to which only a kill at another one leads."""
OF_SWEEPS = (
    "world.wake_workers()",
    "elif world.sweeps is not None:  # sweeps have no verdicts and no alerts",
    "sweeps.take_sweep_result(record, world.sweeps)",
    "swept += 1",
)
"""These worlds have none: app/steps/test_sweeps.py and tests/e2e/test_sweep.py kill those that have."""
OF_CHANGED_SETTINGS = (
    "return  # the caller begins again with the new settings",
    "return  # evaluations would fail",
    'count = count_text(len(withdrawn), "checkpoint")',
    'log.warning("replaced the pending evaluations of %s: settings changed", count)',
    'log.warning("settings changed back: the results of %s are known", count_text(restored, "checkpoint"))',
    "for one in run_context.records:",
    "if one.probes and content_of(one.plan.checkpoint) == content_of(plan.checkpoint):",
    "timed = world.history.report(one.plan.id)",
    "if timed is None:",
    "return report",
    "return replace(report, latency=timed.latency)",
)
"""Nor these: app/test_readiness.py, app/test_settings_change.py and tests/e2e/test_changed_settings.py have them."""
OF_CORRECTIONS = (
    "corrected += gone",
    "context = replace(context, incidents=out_of_order.with_changes(context.incidents, changes))",
    "reports = judged(context)",
    "reports[-1] = replace(reports[-1], incidents=(*reports[-1].incidents, *corrected))",
)
"""Nor these: app/test_order.py and domain/verdicts/test_out_of_order.py have them."""
OF_COMMANDS = (
    "event = evaluation_event(record, report)",
    "history.append_reports(report, events=[event])",
    "return event",
    "renewed, changes = _renewed(world, later, run_context, cause)",
    "world.history.append_reports(*renewed, events=changes)",
    "_tell(world, later, run_context)",
)
"""Nor these, of imports and acceptances: app/commands/test_importing.py and test_accept.py have them."""
OF_REJECTIONS = (
    "world.dispatcher.dispatch([alert])",
    "state.reported.kinds ^= {alert.kind}",
)
"""Nor these: app/test_tick.py has them."""
OF_IDLE_RUNS = (
    "return self._rest(), True",
    "passed, queued = self._rest(), QueueState()",
    "self._show_progress(self._shown, QueueState())",
    "return self._shown",
    "news.is_busy = not is_idle",
    "return True",
    "return not self._asked_at <= now < self._asked_at + LOOK_S",
)
"""Nor these: test_idle_watch.py has them."""
OF_FAILURES = ("continue", "if unsent < left:", "idle = 0", "left = unsent")
"""Nor these: app/test_set_aside.py and app/test_daemon.py have them."""
OF_OTHER_LOGS = (
    "self._release()",
    "self._quiet_since_s = self.clock.monotonic_s()",
    "for run_id, run in self.runs.items():",
    "released = run.state.thinner.released()",
    "if released:",
    "run.points += released",
    "self.touch(run_id)",
    "run.take_row(row, piece.stream, state)",
    "self._unstored.cursors[piece.path] = self.log.count_rest(piece.path) or piece.cursor",
    "self._waiting.add(run.run_id)",
    "return sum(len(run.points) for run in self.runs.values()) >= MOST_UNSAVED",
    "self._save(self._new_incidents())",
)
"""Nor these: contract/test_training_health.py, app/health/test_follow.py and test_notices.py have them."""
NOT_HERE = (
    *(*OF_OTHER_LOGS, *AFTER_A_KILL, *OF_SWEEPS, *OF_CHANGED_SETTINGS),
    *(*OF_REJECTIONS, *OF_CORRECTIONS, *OF_FAILURES, *OF_IDLE_RUNS, *OF_COMMANDS),
)
OF_STATEMENTS, BY_LOT = sized(8, 1000), sized(5, 40)
SEED = 1
TRIES = 10
"""For a statement to be reached: what a thread comes to by the clock, it may not come to in each world."""
IN_WORKERS, IN_WATCHERS = 2, 3
"""Bombs a world: a plan that brings three workers down is set aside."""
TOGETHER = 2


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """A world in which nobody was killed."""

    template: Path
    left: dict[str, Any]
    told: Counter[str]
    counts: dict[str, int]


@dataclass(kw_only=True)
class Outcome:
    """What became of some worlds."""

    fired: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Undisturbed]:
    return [undisturbed(tmp_path_factory.mktemp("worlds"), world) for world in range(len(small_world.LATE))]


def undisturbed(root: Path, world: int) -> Undisturbed:
    small_world.write(root / "template", world)
    home = shutil.copytree(root / "template", root / "undisturbed")
    assert run(small_world.live_and_count, home) == 0
    return Undisturbed(
        template=root / "template",
        left=json.loads((home / "left.json").read_text()),
        told=small_world.told(home),
        counts=json.loads((home / "counts.json").read_text()),
    )


def run(target: Any, *arguments: object) -> int | None:
    process = FRESH.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def statements(file: str, functions: tuple[str, ...] | None) -> Iterator[int]:
    """Yield the first line of every statement inside the functions of a file, docstrings left out."""
    for function in ast.walk(ast.parse((PROJECT / file).read_text())):
        if isinstance(function, ast.FunctionDef) and (functions is None or function.name in functions):
            for node in ast.walk(function):
                is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if isinstance(node, ast.stmt) and node is not function and not is_text:
                    yield node.lineno


def loop_places() -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of every statement of the loops."""
    for file, names in LOOPS.items():
        lines = (PROJECT / file).read_text().splitlines()
        for number in sorted(set(statements(file, names))):
            yield f"{file}:{number}", lines[number - 1].strip()


def place_of(text: str) -> str:
    return next(place for place, statement in loop_places() if statement.startswith(text))


def loop_bombs(worlds: list[Undisturbed]) -> list[list[Bomb]]:
    """Return for each world statements of the loops that no world before it came to: all, or some drawn by lot."""
    lot = random.Random(SEED)  # noqa: S311 - a game of chance
    bombs = []
    left = [place for place, _ in loop_places()]
    for world in worlds:
        reached = [bomb_at(place) for place in left if place in world.counts]
        bombs.append(lot.sample(reached, min(OF_STATEMENTS, len(reached))))
        left = [place for place in left if place not in world.counts]
    return bombs


def bomb_at(place: str, nth: int = 1) -> Bomb:
    file, _, number = place.partition(":")
    return Bomb(file=file, line=int(number), nth=nth)


def drawn_bombs(counts: dict[str, int]) -> list[Bomb]:
    lot = random.Random(SEED)  # noqa: S311 - a game of chance
    return [bomb_at(place, lot.randint(1, counts[place])) for place in lot.sample(sorted(counts), BY_LOT)]


def is_in_worker(bomb: Bomb) -> bool:
    return bomb.file.startswith("eval_jobs/")


def chains(bombs: list[Bomb]) -> list[list[Bomb]]:
    """Deal the bombs to worlds, so that none gets too many."""
    workers, watchers = [b for b in bombs if is_in_worker(b)], [b for b in bombs if not is_in_worker(b)]
    dealt = []
    while workers or watchers:
        dealt.append([*workers[:IN_WORKERS], *watchers[:IN_WATCHERS]])
        del workers[:IN_WORKERS], watchers[:IN_WATCHERS]
    return dealt


def suffer(chain: list[Bomb], home: Path, undisturbed: Undisturbed, outcome: Outcome) -> None:
    """Go through the chain in as many worlds as it takes, and check each."""
    todo, number, missed = list(chain), 0, Counter[Bomb]()
    while todo:
        number += 1
        world = shutil.copytree(undisturbed.template, home / str(number))
        fired: list[Bomb] = []
        while todo and run(small_world.live, world, len(fired), todo[0]) == -signal.SIGKILL:
            fired.append(todo.pop(0))
        if todo and not fired:
            bomb = todo.pop(0)
            missed[bomb] += 1
            if bomb.nth == 1 and missed[bomb] == TRIES:  # how often the source's thread looks at the disk differs
                outcome.wrong.append(f"{bomb} was never reached")
            elif bomb.nth == 1:
                todo.append(bomb)
        if not (world / "left.json").exists():
            run(small_world.live, world, len(fired), None)
        outcome.fired += [f"{bomb.file}:{bomb.line}" for bomb in fired]
        outcome.wrong += [f"after {fired}: {what}" for what in differences(world, undisturbed, kills=len(fired))]
        shutil.rmtree(world)


def differences(world: Path, undisturbed: Undisturbed, *, kills: int) -> Iterator[str]:
    if not (world / "left.json").exists():
        yield "it did not come to its end"
        return
    left, told = json.loads((world / "left.json").read_text()), small_world.told(world)
    yield from (
        f"{name}: {left[name]} and not {value}" for name, value in undisturbed.left.items() if left[name] != value
    )
    if undisturbed.told - told:
        yield f"missing alerts {undisturbed.told - told}"
    if (told - undisturbed.told).total() > kills:
        yield f"more was told twice than there were kills: {told - undisturbed.told}"


def kill_at(bombs: list[Bomb], root: Path, undisturbed: Undisturbed) -> Outcome:
    outcome = Outcome()
    with ThreadPoolExecutor(TOGETHER) as pool:
        jobs = [
            pool.submit(suffer, chain, root / str(number), undisturbed, outcome)
            for number, chain in enumerate(chains(bombs))
        ]
        for job in jobs:
            job.result()
    return outcome


def test_the_undisturbed_worlds_run_every_statement_of_the_loops(worlds: list[Undisturbed]) -> None:
    known = {place for world in worlds for place in world.counts}
    assert [*loop_places()]
    left = [(place, text) for place, text in loop_places() if place not in known and text not in NOT_HERE]
    assert not left, "\n".join(map(str, left))


def test_a_kill_at_every_statement_of_the_loops_changes_nothing(worlds: list[Undisturbed], tmp_path: Path) -> None:
    for number, (world, bombs) in enumerate(zip(worlds, loop_bombs(worlds), strict=True)):
        outcome = kill_at(bombs, tmp_path / str(number), world)
        assert outcome.wrong == []
        assert len(outcome.fired) == len(bombs)


def test_a_kill_at_a_statement_to_which_only_a_kill_leads_changes_nothing(
    worlds: list[Undisturbed], tmp_path: Path
) -> None:
    outcome = Outcome()
    chain = [bomb_at(place_of(text)) for text in (HANDED_IN, FORGOTTEN, CONCLUDED, RESUMED)]
    suffer(chain, tmp_path, worlds[0], outcome)
    assert (len(outcome.fired), outcome.wrong) == (4, [])


def test_a_kill_at_a_checkpoint_that_is_recorded_and_not_yet_judged_changes_nothing(
    worlds: list[Undisturbed], tmp_path: Path
) -> None:
    home = shutil.copytree(worlds[0].template, tmp_path / "world")
    at_the_newest = len(small_world.STEPS) - len(small_world.LATE[0]) - 1  # and one is skipped
    assert run(small_world.live, home, 0, bomb_at(place_of(RECORDED), at_the_newest)) == -signal.SIGKILL
    (home / small_world.ORDERLY).touch()  # what was late comes before it now
    assert run(small_world.live, home, 1, bomb_at(place_of(JUDGED_AGAIN))) == -signal.SIGKILL
    assert run(small_world.live, home, 2, None) == 0
    # Told and sent of the newest checkpoint is what it shows with all others behind it; where they came late, less,
    # and what it shows then is an alert as well.
    once = "missing alerts Counter({'firing sums 80'"
    assert {what.partition(":")[0] for what in differences(home, worlds[0], kills=2)} <= {"alerts", "sent", once}
    assert small_world.told(home)["firing sums 80"] == 1


def test_a_kill_at_lines_below_the_loops_changes_nothing(worlds: list[Undisturbed], tmp_path: Path) -> None:
    outcome = kill_at(drawn_bombs(worlds[0].counts), tmp_path, worlds[0])
    assert outcome.wrong == []
    assert len(outcome.fired) >= BY_LOT // 2
