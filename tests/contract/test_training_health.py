"""The rules of `ports.HealthStore` and `ports.TrainingHistory`, over the fake, SQLite and PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from eval_jobs.records.changes import ChangeKind
from tests.fakes.clock import FakeClock
from tests.fakes.health import FakeHealth
from tests.fakes.training_log import FakeTrainingLog
from tests.tables import open_all
from tracker.adapters.database.health_tables import HEALTH_INCIDENTS
from tracker.adapters.health.history_sql import SqlTrainingHistory
from tracker.adapters.health.store_sql import SqlHealthStore
from tracker.app.health.follow import QUIET_S, LogFollower, Reading, cursors_of
from tracker.config.health import load_rules
from tracker.domain.health.stored import ReadNow
from tracker.domain.records.training import IncidentEnd
from tracker.ports import HealthStore, TrainingHistory

RULES = load_rules().lines
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory, token=0123456789abcdef\n"


class Training:
    """A trainer with one log, and the agents that follow it, one after the other."""

    def __init__(
        self, store: HealthStore, history: TrainingHistory, *, run: str = "run", elsewhere: HealthStore | None = None
    ) -> None:
        self.store = store
        self.history = history
        self.elsewhere = elsewhere
        self.clock = FakeClock()
        self.logs = {"train.log": b""}
        self.run = run
        self.start()

    def start(self) -> None:
        known = self.store.read_so_far()
        log = FakeTrainingLog(self.logs, self.clock, dict(cursors_of(known)), run=self.run, is_first=not known.runs)
        self.agent = LogFollower(log=log, store=self.store, reading=Reading(rules=RULES), clock=self.clock, known=known)

    def write(self, *lines: str) -> None:
        self.logs["train.log"] += "".join(lines).encode()

    def steps(self, *steps: int) -> None:
        self.write(*(f"step {step} | loss: {3 - step / 1000}\n" for step in steps))

    def follow(self) -> None:
        self.clock.advance(1.0)
        self.agent.follow()

    def losses(self) -> list[tuple[int, float]]:
        _, points = self.history.logged_points(self.run)
        return [(point.step, point.value) for point in points if point.key == "train/loss"]

    def found(self) -> list[tuple[str, int | None, IncidentEnd | None]]:
        return [(one.name, one.cause.step, one.ended_by) for one in self.history.training_incidents(self.run)]


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def training(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Training]:
    if request.param == "fake":
        fake = FakeHealth()
        yield Training(fake, fake, elsewhere=fake.on("node1"))
        return
    url = f"sqlite:///{tmp_path}/t.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    engine = open_database(url)
    open_all(url)
    elsewhere = SqlHealthStore(engine, "run", "node1")
    yield Training(SqlHealthStore(engine, "run"), SqlTrainingHistory(engine), elsewhere=elsewhere)
    engine.dispose()


def test_lines_become_curves_and_incidents_and_another_agent_continues(training: Training) -> None:
    training.follow()
    training.steps(10, 20)
    training.write(OOM)
    training.follow()
    assert training.losses() == [(10, 2.99), (20, 2.98)]
    assert training.found() == [("oom", 20, None)]
    training.start()
    training.write("Killing subprocess 7\n")
    training.steps(30)
    training.follow()
    assert training.found() == [("oom", 20, None)]
    training.start()
    training.steps(40, 50)
    training.follow()
    assert training.found() == [("oom", 20, IncidentEnd.PROGRESS)]
    (one,) = training.history.training_incidents("run")
    assert (one.lines, one.ranks, one.ended_step) == (2, (3,), 50)
    assert [step for step, _ in training.losses()] == [10, 20, 30, 40, 50]
    (progress,) = training.history.progress("run")
    assert (progress.run_id, progress.last_step) == ("run", 50)
    assert training.history.followed_runs() == ("run",)


def test_no_key_of_a_log_is_stored(training: Training) -> None:
    training.write(OOM)
    training.follow()
    (one,) = training.history.training_incidents("run")
    assert one.cause.text.endswith("token=***")
    assert one.context == (one.cause.text,)
    ((_, state),) = training.store.read_so_far().streams.values()
    assert list(state.recent) == [one.cause.text]


def test_the_past_raises_no_alert_unless_it_is_the_end_of_a_recent_log(training: Training) -> None:
    training.write(OOM)
    training.steps(10, 20, 30)
    training.write("OSError: [Errno 28] No space left on device\n")
    training.start()
    training.follow()
    training.follow()
    past = [(one.name, one.is_alert) for one in training.history.training_incidents("run")]
    assert past == [("oom", False), ("disk_full", True)]


def test_the_last_line_counts_although_it_has_no_end_and_once_when_it_gets_one(training: Training) -> None:
    training.follow()
    training.write("step 10 | loss: 2.5\nCUDA out of memory. Tried to allocate 2")
    training.follow()
    for _ in range(4):
        training.follow()
    assert training.found() == [("oom", 10, None)]
    training.start()
    training.write(".00 GiB\nstep 20 | loss: 2.")
    training.follow()
    assert [one.lines for one in training.history.training_incidents("run")] == [1]
    training.write("25\n")
    training.follow()
    assert training.losses() == [(10, 2.5), (20, 2.25)]


def test_an_incident_that_was_dismissed_stays_so_while_lines_join_it(training: Training) -> None:
    training.follow()
    training.write(OOM)
    training.follow()
    (one,) = training.history.training_incidents("run")
    before = training.history.position()
    assert training.history.dismiss(one.id, "known").reason == "known"
    _, changes = training.history.changes(before)
    assert [(change.kind, change.run_id) for change in changes] == [(ChangeKind.TRAINING, "run")]
    training.write(OOM)
    training.follow()
    (again,) = training.history.training_incidents("run")
    assert (again.ended_by, again.reason, again.lines) == (IncidentEnd.DISMISSED, "known", 2)
    training.steps(1, 2, 3)
    training.follow()
    assert training.found() == [("oom", None, IncidentEnd.PROGRESS)]
    with pytest.raises(ConfigError, match="no incident 'other'"):
        training.history.dismiss("other", "why")


def test_steps_that_go_back_begin_a_branch_of_the_curves(training: Training) -> None:
    training.steps(10, 20, 30)
    training.follow()
    training.write("step 20 | loss: 2.5\nstep 30 | loss: 2.25\n")
    training.follow()
    assert training.losses() == [(10, 2.99), (20, 2.98), (30, 2.97), (20, 2.5), (30, 2.25)]


def test_the_newest_point_of_a_thinned_curve_is_stored_when_nothing_follows(training: Training) -> None:
    training.steps(*range(5000))
    training.follow()
    assert len(training.losses()) < 2000
    assert training.losses()[-1][0] < 4999
    training.clock.advance(QUIET_S)
    training.follow()
    assert training.losses()[-1][0] == 4999
    assert training.history.logged_points("run", after=10**9) == (10**9, ())


def test_a_spike_is_an_incident_that_ends(training: Training) -> None:
    training.steps(*range(0, 400, 10))
    training.follow()
    training.write("step 400 | loss: 9.5\nstep 410 | loss: 9.9\n")
    training.follow()
    assert training.found() == [("spike", 400, None)]
    training.start()
    training.steps(420)
    training.follow()
    assert training.found() == [("spike", 400, IncidentEnd.PROGRESS)]


def test_a_sub_folder_has_the_incidents_of_its_run_and_no_run_those_of_another(training: Training) -> None:
    training.write(OOM)
    training.follow()
    (one,) = training.history.training_incidents("run/v0")
    other = replace(one, id="of-v1", run_id="run/v1", seen_at=one.seen_at + timedelta(seconds=1))
    reader = training.agent.known.reader
    training.store.save(ReadNow(reader=reader, read_at=one.seen_at, runs={}, streams={}, incidents=(other,), points={}))
    assert [found.id for found in training.history.training_incidents("run/v1")] == [one.id, "of-v1"]
    assert [found.id for found in training.history.training_incidents("run")] == [one.id]
    assert training.history.training_incidents("runs") == ()
    assert training.history.progress("ru") == ()


def test_another_failure_opens_a_dismissed_incident_again_and_stops_and_consequences_do_not(training: Training) -> None:
    training.follow()
    training.write(OOM)
    training.follow()
    (one,) = training.history.training_incidents("run")
    training.history.dismiss(one.id, "known")
    training.write("slurmstepd: error: *** JOB 7 ON node7 CANCELLED AT 2026-01-01T00:00:00 ***\n")
    training.follow()
    assert training.found() == [("oom", None, IncidentEnd.DISMISSED)]
    training.write("OSError: [Errno 28] No space left on device\n")
    training.follow()
    assert training.found() == [("oom", None, None)]


def test_what_lasts_at_the_end_of_a_recent_log_is_no_history_however_it_ends(training: Training) -> None:
    training.steps(*range(0, 400, 10))
    training.write("step 400 | loss: 90.5\n", "step 410 | loss: 91.5\n", OOM.rstrip("\n"))
    training.start()
    training.follow()
    training.start()  # the first agent was killed after one pass
    for _ in range(5):
        training.follow()
    found = {one.name: one.is_alert for one in training.history.training_incidents("run")}
    assert found == {"oom": True, "spike": True}


def test_a_damaged_incident_is_left_out_alone(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/t.db")
    open_all(str(engine.url))
    training = Training(SqlHealthStore(engine, "run"), SqlTrainingHistory(engine))
    training.write(OOM)
    training.steps(10, 20, 30)
    training.write("OSError: [Errno 28] No space left on device\n")
    training.follow()
    damaged, other = training.history.training_incidents("run")
    with engine.begin() as connection:
        connection.execute(update(HEALTH_INCIDENTS).where(HEALTH_INCIDENTS.c.id == damaged.id).values(incident="{"))
    assert training.history.training_incidents("run") == (other,)
    engine.dispose()


def test_an_agent_that_hung_stores_nothing_once_another_one_reads(training: Training) -> None:
    training.follow()
    training.steps(10, 20)
    training.write(OOM)
    training.follow()
    hung = training.agent
    training.start()
    training.steps(30, 40, 50)
    training.follow()
    known, losses = training.found(), training.losses()
    assert known == [("oom", 20, IncidentEnd.PROGRESS)]
    training.write("OSError: [Errno 28] No space left on device\n")
    assert not hung.follow()
    assert hung.is_replaced
    assert (training.found(), training.losses()) == (known, losses)
    training.follow()
    assert training.found() == [*known, ("disk_full", 50, None)]


def test_agents_on_two_machines_have_a_state_each_and_one_progress_and_curve(training: Training) -> None:
    assert training.elsewhere is not None
    other = Training(training.elsewhere, training.history)
    training.steps(10, 20)
    training.write(OOM)
    other.steps(10, 20, 30)
    other.write(OOM)
    for _ in range(2):
        for one in (training, other):
            one.follow()
            assert not one.agent.is_replaced
    assert set(training.found()) == {("oom", 20, None), ("oom", 30, None)}
    assert len({one.id for one in training.history.training_incidents("run")}) == 2
    assert training.losses() == [(10, 2.99), (20, 2.98)]
    other.start()
    other.steps(40, 50, 60)
    other.follow()
    assert set(training.found()) == {("oom", 20, None), ("oom", 30, IncidentEnd.PROGRESS)}
    (progress,) = training.history.progress("run")
    assert (progress.last_step, training.history.followed_runs()) == (60, ("run",))
