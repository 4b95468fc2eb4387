"""Which checkpoints the aliases name, whatever happens to the run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalRecord, EvalResult
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.domain.best.choice import aliases_of, champions_of
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Incident
from tracker.domain.scores.run_scores import scores_of
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.verdicts.rewind import scores_of_newest

QUESTIONS = 100


def record(step: int, rights: Mapping[str, int]) -> EvalRecord:
    given = {name: [float(at < right) for at in range(QUESTIONS)] for name, right in rights.items()}
    return record_of(step, given, suite=suite_of(tuple(rights)))


def named(*records: EvalRecord, incidents: Sequence[Incident] = ()) -> dict[str, int]:
    """Return the step that each alias names."""
    columns = [{o.benchmark: columns_of(o.samples) for o in r.outcomes if isinstance(o, EvalResult)} for r in records]
    scores = scores_of("run", zip(records, columns, strict=True))
    branches = branches_of(one.plan.checkpoint for one in records)
    return {c.alias: c.checkpoint.step for c in champions_of(scores_of_newest(scores, branches), incidents)}


def test_benchmarks_of_any_script_have_an_alias_each() -> None:
    assert aliases_of(["数学", "常识", "gsm8k", "acc,none"]) == {
        "数学": "best-数学",
        "常识": "best-常识",
        "gsm8k": "best-gsm8k",
        "acc,none": "best-acc-none",
    }
    assert named(record(100, {"a b": 90, "a/b": 10}), record(200, {"a b": 10, "a/b": 90})).keys() == {
        "champion",
        *aliases_of(["a b", "a/b"]).values(),
    }


@given(st.lists(st.text(max_size=300), unique=True, max_size=8))
def test_every_name_has_an_alias_of_its_own_that_mlflow_takes(names: list[str]) -> None:
    aliases = aliases_of(names).values()
    assert len(set(aliases)) == len(names)
    assert all(re.fullmatch(r"[\w-]+", alias) and len(f"tracker.reason/{alias}") <= 250 for alias in aliases)


def test_a_benchmark_that_was_changed_is_the_best_where_it_was_asked_anew_only() -> None:
    old = [record(100 * at, {"facts": 90}) for at in range(1, 11)]
    new = [record(100 * at, {"facts": 40}) for at in range(11, 13)]
    changed = [replace(r, outcomes=tuple(replace(o, fingerprint="f-new") for o in r.outcomes)) for r in new]
    assert named(*old) == {"champion": 1000, "best-facts": 1000}
    assert named(*old, *changed) == {"champion": 1200, "best-facts": 1200}


def test_settings_in_between_do_not_count_though_the_newest_checkpoints_have_a_loss() -> None:
    records = [record(100 * at, {"facts": 80 + at}) for at in range(1, 6)]
    (between,) = (replace(o, fingerprint="f-other") for o in records[2].outcomes)
    records[2] = replace(records[2], outcomes=(between,))
    loss = Incident(run_id="run", suite="skills", benchmark="facts", opened_step=400, onset_step=400, opened_digest="d")
    assert named(*records, incidents=[loss])["champion"] == 200


def test_what_training_left_behind_is_no_champion_any_more() -> None:
    first = [record(100 * at, {"facts": 10 * at}) for at in range(1, 10)]
    again = record(300, {"facts": 25})
    later = again.plan.checkpoint.ready_at + timedelta(days=1)
    rewritten = replace(again.plan.checkpoint, digest="of-tuesday", ready_at=later)
    again = replace(again, plan=replace(again.plan, id="again", checkpoint=rewritten))
    assert named(*first)["champion"] == 900
    assert named(*first, again)["champion"] == 300
