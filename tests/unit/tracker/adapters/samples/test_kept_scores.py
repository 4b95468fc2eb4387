"""Scores in memory: only what is new is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalResult
from tests.records import RUN, forgetting_run
from tests.score_tables import table_of, table_of_records
from tracker.adapters.samples.kept_scores import KeptScores, StoredRecord
from tracker.domain.scores.sample_columns import SampleColumns, columns_of

RECORDS = forgetting_run(checkpoints=4, samples=5).records


STORED = tuple(StoredRecord(record=record, samples="version") for record in RECORDS)


@dataclass
class Reader:
    """Reads the samples that records hold, counts, and fails on demand."""

    read: list[str] = field(default_factory=list)
    broken: str = ""

    def __call__(self, stored: StoredRecord) -> Mapping[str, SampleColumns]:
        record = stored.record
        if record.plan.id == self.broken:
            raise StoreError("the samples are missing", hint="")
        self.read.append(record.plan.id)
        return {o.benchmark: columns_of(o.samples) for o in record.outcomes if isinstance(o, EvalResult)}


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def kept(reader: Reader) -> KeptScores:
    return KeptScores(RUN, reader)


def test_what_was_read_is_not_read_again(kept: KeptScores, reader: Reader) -> None:
    scores = kept.brought_up_to(STORED[:3])
    assert kept.brought_up_to(STORED[:3]) is scores
    assert table_of(kept.brought_up_to(STORED)) == table_of_records(RECORDS)
    assert reader.read == [record.plan.id for record in RECORDS]


def test_a_replaced_record_costs_reading_its_own_step_only(kept: KeptScores, reader: Reader) -> None:
    kept.brought_up_to(STORED)
    reader.read.clear()
    newer = replace(RECORDS[1], finished_at=RECORDS[1].finished_at + timedelta(seconds=5))
    scores = kept.brought_up_to((STORED[0], replace(STORED[1], record=newer), *STORED[2:]))
    assert table_of(scores) == table_of_records((RECORDS[0], newer, *RECORDS[2:]))
    assert scores.of("facts")[0].finished_at[1] == newer.finished_at
    assert reader.read == [newer.plan.id]


def test_samples_that_are_missing_leave_the_scores_as_they_were(kept: KeptScores, reader: Reader) -> None:
    before = kept.brought_up_to(STORED[:2])
    reader.broken = RECORDS[3].plan.id
    with pytest.raises(StoreError, match="missing"):
        kept.brought_up_to(STORED)
    assert kept.brought_up_to(STORED[:2]) is before
    reader.broken = ""
    assert table_of(kept.brought_up_to(STORED)) == table_of_records(RECORDS)


def test_checkpoints_that_were_asked_the_same_share_what_was_asked(kept: KeptScores) -> None:
    for series in kept.brought_up_to(STORED).series.values():
        assert {id(asked) for asked in series.asked} == {id(series.samples)}


def test_a_result_without_samples_is_no_checkpoint_of_its_series(kept: KeptScores) -> None:
    facts = RECORDS[0].outcomes[0]
    assert isinstance(facts, EvalResult)
    record = replace(RECORDS[0], outcomes=(replace(facts, samples=()), *RECORDS[0].outcomes[1:]))
    assert kept.brought_up_to([StoredRecord(record=record, samples="")]).of("facts") == ()
