"""Whatever is measured at a checkpoint, and in whatever order, MLflow ends as the last records describe it."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from mlflow.entities import LoggedModel

from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import Benchmark, BenchmarkFailure, EvalRecord, EvalResult, SampleStatus
from tests.fakes.clock import FakeClock
from tests.mlflow_server import MlflowServer
from tests.mlflow_stores import MlflowFiles
from tests.postgres import PostgresServer
from tests.records import forgetting_run
from tests.shared_servers import shared
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.records.tracking import Champion
from tracker.domain.tracking.batch import tracking_batch

RUN = forgetting_run(run_id="repairs", checkpoints=2, samples=6, trouble=False)
SCORED, REPORT = RUN.records[1], RUN.reports[1]
CHECKPOINT = SCORED.plan.checkpoint


def unscored() -> EvalRecord:
    """Return the record of a plan whose answers were all errors, and one of whose benchmarks failed."""
    failed = SCORED.outcomes[0].benchmark
    failure = BenchmarkFailure(benchmark=failed, fingerprint="", code="E", message="m", hint="h", retryable=True)
    results = [o for o in SCORED.outcomes[1:] if isinstance(o, EvalResult)]
    errors = [tuple(replace(s, score=None, status=SampleStatus.ERROR) for s in r.samples) for r in results]
    without = tuple(replace(r, samples=samples) for r, samples in zip(results, errors, strict=True))
    return replace(SCORED, outcomes=(failure, *without))


def with_other_settings() -> EvalRecord:
    """Return a record with the same values of some metrics, on what MLflow calls other datasets."""
    plan = SCORED.plan
    suite = replace(plan.suite, generation=replace(plan.suite.generation, max_tokens=99))
    return replace(SCORED, plan=replace(plan, id="a" * 32, suite=suite), outcomes=RUN.records[0].outcomes)


def of_another_suite() -> EvalRecord:
    result = next(o for o in SCORED.outcomes if isinstance(o, EvalResult))
    suite = replace(SCORED.plan.suite, name="more", benchmarks=(Benchmark(name="more", adapter="exact"),))
    plan = replace(SCORED.plan, id="b" * 32, suite=suite, loads=())
    return replace(SCORED, plan=plan, outcomes=(replace(result, benchmark="more"),), probes=())


def rewound() -> EvalRecord:
    """Return the record of other weights that were written at the same step later."""
    again = replace(CHECKPOINT, digest="e" * 64, ready_at=CHECKPOINT.ready_at + timedelta(hours=2))
    return replace(with_other_settings(), plan=replace(SCORED.plan, id="c" * 32, checkpoint=again))


RECORDS = {"U": unscored(), "S": SCORED, "N": with_other_settings(), "O": of_another_suite(), "R": rewound()}
EACH_AFTER_EACH = "UUSUNUOSSNSONNOOURSRU"
"""Every record of one checkpoint follows every other and itself."""
SHORTER = "USNORSU"


@dataclass
class Expected:
    """What the models of the two weights must show."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str, record: EvalRecord) -> None:
        batch = tracking_batch(record, REPORT)
        known = self.values.setdefault(batch.checkpoint.digest, {})
        names = {d.name for d in batch.datasets}
        kept = {} if kind == "R" else {k: v for k, v in known.items() if k.partition("/")[2] not in names}
        self.values[batch.checkpoint.digest] = kept | {m.key: m.value for m in batch.metrics}
        if kind != "O":
            self.failed[batch.checkpoint.digest] = {tag for tag in batch.tags if tag.startswith("failed/")}


@dataclass(frozen=True, kw_only=True)
class Place:
    files: MlflowFiles
    settings: TrackingSettings


@dataclass(frozen=True)
class MlflowDatabase(MlflowFiles):
    """A store in a database of PostgreSQL."""

    url: str

    @property
    def uri(self) -> str:
        return self.url


@pytest.fixture(params=["sqlite", "postgresql", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as opened:
        if request.param == "sqlite":
            files = MlflowFiles(tmp_path)
            yield Place(files=files, settings=files.settings())
            return
        if request.param == "postgresql":
            database = MlflowDatabase(tmp_path, opened.enter_context(shared(PostgresServer)).new_database())
            yield Place(files=database, settings=database.settings())
            return
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
        server = opened.enter_context(shared(MlflowServer))
        name = f"repairs-{tmp_path.name}"
        changes = {"uri": server.url, "experiment": name, "output_dir": f"/{name}"}
        yield Place(files=server.files, settings=server.files.settings(**changes))


def test_every_record_replaces_what_mlflow_shows_of_its_checkpoint(place: Place, tmp_path: Path) -> None:
    kinds = EACH_AFTER_EACH if place.settings.uri.startswith("sqlite") else SHORTER
    expected = Expected()
    with closing(_tracking(place, tmp_path)) as tracking:
        for count, kind in enumerate(kinds):
            record = replace(RECORDS[kind], finished_at=SCORED.finished_at + timedelta(minutes=count))
            tracking.publish(record, replace(REPORT, plan_id=record.plan.id))
            assert tracking.flush() == 0, f"{kinds[: count + 1]}: refused"
            expected.add(kind, record)
            shown = {model.params["digest"]: model for model in place.files.models(place.settings.experiment)}
            assert {d: _values(m) for d, m in shown.items()} == expected.values, kinds[: count + 1]
            assert {d: _failed(m) for d, m in shown.items()} == expected.failed
            newest = _newest_points(place)
            of_newest = expected.values.get("e" * 64) or expected.values[CHECKPOINT.digest]
            assert of_newest.items() <= newest.items()


def test_an_alias_follows_the_checkpoint_that_is_evaluated_again(place: Place, tmp_path: Path) -> None:
    with closing(_tracking(place, tmp_path)) as tracking:
        for kind in "UOS":
            record = RECORDS[kind]
            tracking.publish(record, replace(REPORT, plan_id=record.plan.id))
            best = Champion(alias="champion", checkpoint=CHECKPOINT, plan_id=record.plan.id, reason="the best")
            tracking.publish_champions(CHECKPOINT, [best])
            assert tracking.flush() == 0
    client = place.files.client()
    (version,) = client.search_model_versions(f"name = '{RUN.run_id}'")
    (model,) = place.files.models(place.settings.experiment)
    assert client.get_model_version_by_alias(RUN.run_id, "champion").source == f"models:/{model.model_id}"
    assert version.tags["tracker.reason/champion"] == "the best"


# --- private


def _tracking(place: Place, folder: Path) -> OutboxTracking:
    return OutboxTracking(open_database(f"sqlite:///{folder}/tracker.db"), MlflowStore(place.settings), FakeClock())


def _values(model: LoggedModel) -> dict[str, float]:
    keys = [m.key for m in model.metrics]
    assert len(keys) == len(set(keys))
    return {m.key: m.value for m in model.metrics}


def _failed(model: LoggedModel) -> set[str]:
    return {tag for tag in model.tags if tag.startswith("failed/")}


def _newest_points(place: Place) -> dict[str, float]:
    points = sorted(place.files.metrics(place.settings.experiment), key=lambda m: int(m.timestamp))
    return {m.key: m.value for m in points}
