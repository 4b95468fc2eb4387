"""What is held, published and called a gap, by what is seen of checkpoints over time; no disk and no clock."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from eval_jobs.types import Checkpoint, CheckpointFormat
from tracker.domain.checkpoints.buckets import FIRST_S, late_files
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import Document, Facts, FileFact, Header, Listing
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.unusable import NotYet
from tracker.domain.checkpoints.watching import STALLED_S, WatchOptions
from tracker.domain.checkpoints.watchlist import Watchlist

SETTLE_S = 3.0
WEIGHTS, CONFIG, STATE, TOKENIZER = "model.safetensors", "config.json", "trainer_state.json", "tokenizer.json"
SAVE = (CONFIG, WEIGHTS, STATE)
"""Long since written, and the last file proves the end: it is settled at first sight."""
MODEL = (CONFIG, WEIGHTS)
"""Nothing but quiet proves the end of it."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITTEN_NS = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Place:
    step: int
    run_id: str = "run"

    @property
    def uri(self) -> str:
        return f"/out/checkpoint-{self.step}"


@dataclass(kw_only=True)
class World:
    """A place of checkpoints, and what its source would do: reading and holding are lines in here."""

    watchlist: Watchlist
    is_bucket: bool = False
    now: datetime = NOW
    files: defaultdict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Of each step: names, with the number that tells what was written again from what was there."""
    trouble: str = ""
    """Why nothing can be held now."""
    why_unread: NotYet | None = None
    held: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    def write(self, step: int, *names: str) -> None:
        for name in names:
            self.files[step][name] = self.files[step].get(name, step) + 1

    def look(self, after_s: float = 0.0, *, is_full: bool = False) -> list[int]:
        """Look at everything; return the steps that are handed out to be published."""
        self.now += timedelta(seconds=after_s)
        for step in sorted(self.files):
            is_passed = step < max(self.files)
            found = self.watchlist.look(
                Place(step=step), self.facts(step), self.now, is_full=is_full, is_passed=is_passed
            )
            complete = self.watchlist.note(found, self.read(step) if found.is_read else None)
            self.dropped += [pin.step for pin in found.useless]
            if complete is not None and not self.is_bucket:
                self.hold(step, complete)
        self.dropped += [pin.step for pin in self.watchlist.keep({Place(step=s).uri for s in self.files}, self.now)]
        for one in self.watchlist.settled(self.now):
            assert isinstance(one.readiness, Complete)
            self.hold(one.site.step, one.readiness)
        for one in self.watchlist.overdue(self.now):
            self.watchlist.add_gap(one, self.now)
        self.watchlist.gaps.add_missed(self.now)
        return list(self.published())

    def published(self) -> Iterator[int]:
        while (pin := self.watchlist.next_due(self.now, {})) is not None:
            self.watchlist.gaps.forget(pin.uri)
            yield pin.step

    def hold(self, step: int, complete: Complete) -> None:
        if self.trouble:
            self.watchlist.not_held(Place(step=step).uri, self.trouble)
        else:
            self.held.append(step)
            self.watchlist.held(Place(step=step).uri, pin_of(self.facts(step), complete))

    def facts(self, step: int) -> Facts:
        files = (
            FileFact(name=name, size=8, mtime_ns=WRITTEN_NS + 2 if name == STATE else WRITTEN_NS + 1, inode=inode)
            for name, inode in sorted(self.files[step].items())
        )
        return Facts(path=Place(step=step).uri, mtime_ns=WRITTEN_NS + 1, files=tuple(files))

    def read(self, step: int) -> Listing | NotYet:
        documents: dict[str, Document] = {CONFIG: {}, STATE: {"global_step": step, "save_steps": 10}}
        facts = self.facts(step)
        return self.why_unread or Listing(
            facts=facts,
            step=step,
            headers={WEIGHTS: Header(end=8, tensors=frozenset({"a"}))},
            documents={name: documents[name] for name in facts.names() & documents.keys()},
        )

    def gaps(self) -> list[tuple[int, str]]:
        return [(gap.step, gap.code) for gap in self.watchlist.gaps.found()]

    def why(self) -> str:
        return "; ".join(gap.message for gap in self.watchlist.gaps.found())


def pin_of(facts: Facts, complete: Complete, *, is_published: bool = False) -> Pin:
    files = tuple(f for f in facts.files if f.name in complete.held)
    checkpoint = Checkpoint(
        run_id="run", step=complete.step, uri="/pins/x", source_uri=facts.path, format=complete.format, digest="d",
        ready_at=NOW,
    )  # fmt: skip
    return Pin(
        folder=f"/pins/{complete.step}",
        run_id="run",
        step=complete.step,
        source=facts.path,
        complete=complete,
        source_files=files,
        own_files=files,
        ready_ns=facts.newest_ns(),
        checkpoint=checkpoint if is_published else None,
    )


def folder() -> World:
    return World(watchlist=Watchlist(WatchOptions(settle_s=SETTLE_S), is_bucket=False))


def bucket() -> World:
    return World(watchlist=Watchlist(WatchOptions(settle_s=SETTLE_S), is_bucket=True), is_bucket=True)


@pytest.fixture
def world() -> World:
    return folder()


def test_a_folder_is_held_at_once_and_taken_when_it_has_settled(world: World) -> None:
    world.write(10, *MODEL)
    assert (world.look(), world.held) == ([], [10])
    assert world.watchlist.settles_in_s(world.now, {}) == SETTLE_S
    assert world.look(SETTLE_S - 0.1) == []
    assert world.look(0.1) == [10]
    assert world.look(SETTLE_S, is_full=True) == []
    assert world.held == [10]


def test_what_came_beside_the_weights_before_it_settled_is_held_anew_and_waited_for_again(world: World) -> None:
    world.write(10, *MODEL)
    world.look()
    world.write(10, TOKENIZER)
    assert world.look(SETTLE_S) == []
    assert (world.held, world.dropped) == ([10, 10], [10])
    assert world.look(SETTLE_S) == [10]


def test_other_weights_under_the_same_name_are_another_checkpoint(world: World) -> None:
    world.write(10, *SAVE)
    assert world.look() == [10]
    world.write(10, WEIGHTS)
    assert world.look() == [10]
    assert (world.held, world.dropped) == ([10, 10], [])


def test_weights_that_changed_before_they_settled_are_dropped_unless_the_trainer_had_finished(world: World) -> None:
    world.write(10, *MODEL)
    world.look()
    world.write(10, WEIGHTS)
    world.look()
    assert (world.held, world.dropped) == ([10, 10], [10])
    world.write(20, CONFIG)  # whoever begins 20 is done with 10
    world.look()
    world.write(10, WEIGHTS)
    assert world.look() == [10]
    assert world.dropped == [10]


ENDS = [
    (SAVE, (), [10], ""),
    (MODEL, (20,), [10], ""),
    (MODEL, (), [], "its files had changed within the last 3 s"),
    ((CONFIG,), (), [], "no weights: "),
]


def test_what_goes_before_it_settled_is_taken_if_it_was_finished_and_else_a_gap() -> None:
    for names, later, taken, reason in ENDS:
        world = folder()
        world.write(10, *names)
        for step in later:
            world.write(step, CONFIG)
        gone = world.look()
        del world.files[10]
        assert gone + world.look() == taken, names
        assert (world.gaps() == []) == (not reason), names
        assert reason in world.why()


def test_a_deletion_that_has_only_begun_loses_nothing_that_is_finished(world: World) -> None:
    world.write(10, *MODEL, "notes.md")
    world.look()
    world.write(20, CONFIG)
    world.look()
    del world.files[10][WEIGHTS]
    assert world.look() == [10]
    assert world.gaps() == []


def test_files_that_nobody_serves_may_go_while_it_settles(world: World) -> None:
    world.write(10, *MODEL, "notes.md")
    world.look()
    del world.files[10]["notes.md"]
    assert world.look(SETTLE_S) == []
    assert world.look(SETTLE_S) == [10]
    assert (world.held, world.dropped) == ([10], [])


def test_what_cannot_be_held_is_tried_again_and_is_a_gap_with_the_reason_when_it_goes() -> None:
    for world, done in ((folder(), "pinned"), (bucket(), "downloaded")):
        world.trouble = "the disk is full"
        world.write(10, *SAVE)
        for _ in range(2):
            world.look(FIRST_S)
        assert (world.held, world.gaps()) == ([], [])
        assert not world.watchlist.are_expected()
        del world.files[10]
        world.look()
        assert world.gaps() == [(10, "E-CKPT-VANISHED")]
        assert world.why().endswith(f"was deleted before it could be {done}: the disk is full")
        world.trouble = ""
        world.write(20, *SAVE)
        world.look()
        assert world.look(FIRST_S) or world.held == [20]


def test_an_unfinished_one_is_a_gap_once_a_later_one_is_complete_until_it_is_completed(world: World) -> None:
    world.write(10, CONFIG)
    world.look()
    assert world.look(STALLED_S / 2) == []
    assert world.gaps() == []
    world.write(20, *SAVE)
    assert world.look() == [20]
    assert world.gaps() == [(10, "E-CKPT-INCOMPLETE")]
    world.write(10, WEIGHTS, STATE)
    assert world.look() == [10]
    assert world.gaps() == []


def test_while_it_cannot_be_seen_nothing_is_known_to_be_unchanged() -> None:
    for world in (folder(), bucket()):
        world.write(10, CONFIG)
        world.look()
        world.now += timedelta(seconds=STALLED_S)
        world.watchlist.all_unseen(world.now)
        world.look(STALLED_S - 1)
        assert world.gaps() == []
        world.look(1.0)
        assert world.gaps() == [(10, "E-CKPT-INCOMPLETE")]


def test_giving_up_names_all_that_is_not_taken(world: World) -> None:
    world.write(10, CONFIG)
    world.write(20, *MODEL)
    world.look()
    assert world.look(SETTLE_S) == [20]
    world.write(30, *MODEL)
    world.look()
    world.watchlist.give_up(world.now)
    assert [step for step, _ in world.gaps()] == [10, 30]
    assert "its files kept changing" in world.why()


def test_a_step_that_was_never_seen_is_inferred_from_the_rhythm_after_the_first_look(world: World) -> None:
    for step in (10, 20, 50):
        world.write(step, *SAVE)
    world.look()
    assert world.gaps() == []  # whatever was lost before is not ours
    world.write(80, *SAVE)
    world.look()
    assert world.gaps() == [(60, "E-CKPT-VANISHED")]
    assert world.watchlist.gaps.found()[0].steps == range(60, 80, 10)
    assert world.watchlist.gaps.found()[0].source_uri == "/out/checkpoint-60"
    assert world.watchlist.gaps.found()[0].is_inferred


def restored(is_bucket: bool, *, is_published: bool, by_hand: bool = False) -> World:  # noqa: FBT001
    """What the next process knows of steps 10, 20 and 40 that a killed one had pinned."""
    world = bucket() if is_bucket else folder()
    pins = []
    for step in (10, 20, 40):
        complete = Complete(
            format=CheckpointFormat.FULL, base_model=None, weights=(WEIGHTS,), held=(WEIGHTS, CONFIG), step=step,
            ranks=0, has_trainer_state=False, is_end_proven=False, save_every=10,
        )  # fmt: skip
        world.write(step, *MODEL)
        pins.append(replace(pin_of(world.facts(step), complete, is_published=is_published), by_hand=by_hand))
    assert world.watchlist.restore(pins, world.now) == ()
    return world


@pytest.mark.parametrize("is_bucket", [False, True])
def test_what_a_killed_process_had_held_is_published_and_what_it_had_published_is_known(is_bucket: bool) -> None:  # noqa: FBT001
    world = restored(is_bucket, is_published=False)
    assert world.look() + world.look(SETTLE_S) == [10, 20, 40]
    world = restored(is_bucket, is_published=True)
    assert world.look() + world.look(SETTLE_S) == []
    assert world.held == []
    assert world.gaps() == [(30, "E-CKPT-VANISHED")]
    assert restored(is_bucket, is_published=True, by_hand=True).gaps() == []


def test_what_was_uploaded_is_held_and_taken_when_it_has_settled_the_first_of_a_run_later() -> None:
    world = bucket()
    world.write(10, *SAVE)
    assert world.look() + world.look(FIRST_S - 1) == []
    assert world.watchlist.are_expected()
    assert world.watchlist.settles_in_s(world.now, {}) == 1.0
    assert world.look(1.0) == [10]
    world.write(20, *SAVE)
    assert world.look() == []
    assert world.look(SETTLE_S) == [20]
    world.write(10, WEIGHTS)
    assert world.look() + world.look(SETTLE_S) == [10]
    assert world.held == [10, 20, 10]


def test_an_upload_that_cannot_be_read_is_read_at_every_look_and_a_gap_after_a_while() -> None:
    world = bucket()
    world.write(10, *SAVE)
    world.why_unread = NotYet(code="E-CKPT-INCOMPLETE", reason="it is in an archive", hint="restore it")
    world.look()
    world.look(STALLED_S)
    assert "it is in an archive" in world.why()
    world.why_unread = None
    assert world.look() + world.look(FIRST_S) == [10]


def test_a_hold_that_could_not_be_published_is_handed_out_again(world: World) -> None:
    world.write(10, *SAVE)
    world.look()
    one = world.watchlist.known(Place(step=10).uri)
    assert one is not None
    assert one.pin is not None
    world.watchlist.postponed(one.pin)
    assert world.look() == []
    world.watchlist.retry()
    assert world.look() == [10]


def test_files_that_come_too_late_are_those_that_would_have_been_served() -> None:
    world = restored(is_bucket=True, is_published=True)
    one = world.watchlist.known(Place(step=10).uri)
    assert one is not None
    assert isinstance(one.readiness, Complete)
    assert late_files({*MODEL, "optimizer.pt", "chat_template.jinja"}, one.readiness) == ("chat_template.jinja",)
