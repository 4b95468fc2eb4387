"""The benchmark of kills, short: processes and single lines are killed, and nothing may be lost, doubled or misread."""

from dataclasses import replace

import pytest

from benchmarks.chaos import Campaign, begin
from benchmarks.killing.audit import Seen, Verdict, audit
from benchmarks.killing.place import Place
from eval_jobs.types import EvalResult
from tests.deep import sized

pytestmark = pytest.mark.timeout(900)
KILLS = sized(3, 10)
SEED = 11


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return begin(tmp_path_factory.mktemp("chaos"))


def reference(campaign: Campaign) -> Seen:
    assert campaign.reference is not None
    return campaign.reference


def judged(campaign: Campaign, seen: Seen) -> Verdict:
    return audit(Place(home=campaign.folder / "0"), seen, campaign.reference)


def test_after_some_kills_no_result_is_lost_duplicated_misread_or_orphaned(campaign: Campaign) -> None:
    counts = campaign.round(SEED, KILLS)
    assert counts.pop("kills") >= KILLS
    assert counts == {"lost": 0, "doubled": 0, "misread": 0, "orphans": 0}


def test_what_a_benchmark_that_finds_nothing_would_have_found(campaign: Campaign) -> None:
    seen = reference(campaign)
    assert not any(judged(campaign, seen).counts().values())

    key, (record, *_) = next(iter(seen.records.items()))
    others = {k: v for k, v in seen.records.items() if k != key}
    assert judged(campaign, replace(seen, records=others)).lost
    assert judged(campaign, replace(seen, records=others | {key: (record, record)})).doubled

    result = record.outcomes[0]
    assert isinstance(result, EvalResult)
    wrong = replace(result.samples[0], answer="xdeadbeef")
    for samples, kind in ((result.samples[1:], "lost"), ((wrong, *result.samples[1:]), "misread")):
        changed = replace(record, outcomes=(replace(result, samples=samples), *record.outcomes[1:]))
        assert judged(campaign, replace(seen, records=others | {key: (changed,)})).counts()[kind]

    assert judged(campaign, replace(seen, words={})).misread
    assert judged(campaign, replace(seen, told={})).lost
    assert judged(campaign, replace(seen, told=dict.fromkeys(seen.told, 9))).doubled
    assert judged(campaign, replace(seen, open_plans=1)).lost
    assert judged(campaign, replace(seen, store=replace(seen.store, models={}))).lost
    assert judged(campaign, replace(seen, store=replace(seen.store, runs=("a", "b")))).doubled


def test_processes_and_files_that_a_round_leaves_are_found(campaign: Campaign) -> None:
    place = Place(home=campaign.folder / "0")
    for name in (
        "tmp/left",
        "state/tracker.db.tmp",
        "state/work/runs/plan/answers",
        "state/pins/chaos/.step-1/config.json",
    ):
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        assert judged(campaign, reference(campaign)).orphans, name
        path.unlink()
        while path.parent.name not in ("tmp", "state", "runs", "chaos"):
            path = path.parent
            path.rmdir()
    assert not judged(campaign, reference(campaign)).orphans
