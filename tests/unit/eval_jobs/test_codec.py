"""Records survive being written down, and damaged ones are noticed."""

import tracemalloc
import zlib
from dataclasses import replace

import pytest

from eval_jobs.codec import plan_from_json, plan_to_json, record_from_bytes, record_to_bytes
from eval_jobs.errors import StoreError
from tests.records import forgetting_run

RECORDS = forgetting_run().records


@pytest.mark.parametrize("index", range(len(RECORDS)))
def test_a_record_comes_back_equal(index: int) -> None:
    assert record_from_bytes(record_to_bytes(RECORDS[index])) == RECORDS[index]


def test_a_plan_comes_back_equal() -> None:
    assert plan_from_json(plan_to_json(RECORDS[0].plan)) == RECORDS[0].plan


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema_version": 1, "value": {"id": 3}}'])
def test_a_damaged_plan_is_an_error_with_a_hint(text: str) -> None:
    with pytest.raises(StoreError, match="backup"):
        plan_from_json(text)


@pytest.mark.parametrize("data", [b"", b"not zlib", zlib.compress(b"\xff"), zlib.compress(b"{}")])
def test_a_damaged_record_is_an_error_with_a_hint(data: bytes) -> None:
    with pytest.raises(StoreError, match="backup"):
        record_from_bytes(data)


@pytest.mark.parametrize("plan_id", ["../../etc", "/etc", "a/b", "..", "", "a" * 65, "a\n"])
def test_a_plan_whose_id_would_lead_out_of_our_folders_is_refused(plan_id: str) -> None:
    record = replace(RECORDS[0], plan=replace(RECORDS[0].plan, id=plan_id))
    with pytest.raises(StoreError, match="a stored plan has the invalid id"):
        plan_from_json(plan_to_json(record.plan))
    with pytest.raises(StoreError, match="a stored plan has the invalid id"):
        record_from_bytes(record_to_bytes(record))


def test_a_checkpoint_of_before_pickles_were_noted_is_read_as_one_without() -> None:
    plan = RECORDS[0].plan
    assert plan_from_json(plan_to_json(plan).replace(',"unpickled":false', "")) == plan
    assert ',"unpickled":false' in plan_to_json(plan)


def test_a_record_of_before_canaries_were_asked_is_read_as_one_without() -> None:
    record = RECORDS[0]
    written = zlib.decompress(record_to_bytes(record))
    assert b',"canaries":[]' in written
    assert record_from_bytes(zlib.compress(written.replace(b',"canaries":[]', b""))) == record


def test_a_newer_schema_is_refused_by_its_number() -> None:
    with pytest.raises(StoreError, match="schema version 2"):
        plan_from_json('{"schema_version": 2, "value": {}}')


def test_a_record_of_many_benchmarks_is_written_one_after_the_other() -> None:
    record = forgetting_run(checkpoints=1, samples=100).records[0]
    (result, *_) = record.results
    peaks = []
    for count in (1, 20):
        many = replace(record, outcomes=(result,) * count)
        tracemalloc.start()
        try:
            stored = record_to_bytes(many)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert record_from_bytes(stored) == many
    assert peaks[1] < 3 * peaks[0]
