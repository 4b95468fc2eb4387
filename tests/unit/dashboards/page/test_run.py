import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.page.checkpoint import Sources, collect_checkpoint
from dashboards.page.html import render_page
from dashboards.page.run import read_run, report_file_name, write_page
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from eval_jobs.errors import StoreError
from tests.fakes.queue import FakeQueue
from tests.judged_run import judged_run
from tests.records import RecordedRun, forgetting_run
from tests.reports import run_data, sources_of
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.commands.accept import accept
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import ReadNow
from tracker.domain.log.events import EventKind, run_event
from tracker.domain.records.losses import Acceptance
from tracker.domain.records.policy import Policy

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RUN = forgetting_run()


def test_everything_about_one_run_is_collected() -> None:
    data = read_run(RUN.run_id, sources_of(RUN), now=NOW)
    told = data.conclusions
    assert (len(data.records), len(told.reports), len(told.gaps), len(data.training.curves)) == (10, 10, 1, 100)
    assert data.training.phases == RUN.phases
    assert data.made_at == NOW


def test_the_progress_is_that_of_the_run_and_not_of_a_folder_below_it() -> None:
    world = FakeWorld()
    sources = Sources(history=world.history, queue=world.queue, policy=Policy())
    for folder, progress in (("run/v0", None), ("run", "run")):
        reader = world.history.read_so_far().reader
        read = ReadNow(
            reader=reader, read_at=NOW, runs={folder: RunState(run_id=folder)}, streams={}, incidents=(), points={}
        )
        assert world.history.save(read)
        found = read_run("run", sources, now=NOW).training.progress
        assert (None if found is None else found.run_id) == progress


def test_the_newest_events_of_the_log_are_folded_at_the_end_newest_first() -> None:
    sources = sources_of(RUN)
    place = (RUN.run_id, 700, NOW)
    sources.history.log(
        run_event(EventKind.CHANGED, place, number, subject=f"<b>{number}", before="suspect", after="regressed")
        for number in range(250)
    )
    html = render_page(build_view(read_run(RUN.run_id, sources, now=NOW)), version="1")
    section = html.partition('<section id="log">')[2]
    assert "<summary>200 newest events</summary>" in section
    rows = re.findall(r'<td class="step">700</td><td>changed</td><td class="text">(.*?)</td>', section)
    assert rows == [f"&lt;b&gt;{number}: suspect → regressed" for number in range(249, 49, -1)]
    assert '<a href="#log">' in html
    assert 'id="log"' not in render_page(build_view(run_data(RUN)), version="1")


def test_losses_and_accepted_levels_are_collected() -> None:
    known = read_run(RUN.run_id, sources_of(judged_run()), now=NOW).conclusions
    assert (len(known.incidents), len(known.acceptances)) == (5, 2)


def test_an_accepted_level_is_not_proposed_again_on_any_page() -> None:
    fakes = FakeWorld()
    for record in fakes.run.records:
        fakes.source.put(record.plan.checkpoint)
    fakes.tick()
    fakes.work()
    fakes.tick()
    world, run_id, history = fakes.world(), fakes.run.run_id, fakes.history
    sources = Sources(history=history, queue=fakes.queue, policy=world.policy)

    def proposed() -> list[set[str]]:
        run = build_view(read_run(run_id, sources, now=NOW))
        newest = build_checkpoint_view(collect_checkpoint(history.reports(run_id)[-1], sources, now=NOW))
        return [
            {command.split()[3] for _, command in view.heading.advice if command.startswith("tracker accept")}
            for view in (run, newest)
        ]

    assert proposed() == [{"facts"}, {"facts"}]
    for benchmark, left in (("facts", {"sums"}), ("sums", set())):
        reason = "the mix changed"
        accepted = Acceptance(
            run_id=run_id, step=1000, from_step=1000, benchmark=benchmark, reason=reason, accepted_at=NOW
        )
        accept(world, accepted)
        assert proposed() == [left, left]
    data = read_run(run_id, sources, now=NOW)
    assert [row.ended for row in build_view(data).conclusions.incidents if row.lasts] == []
    assert {one.reason for one in data.conclusions.acceptances} == {"the mix changed"}


def test_texts_are_read_only_where_examples_show_them() -> None:
    data = read_run(RUN.run_id, sources_of(RUN), now=NOW)
    assert sorted(r.plan.checkpoint.step for r in data.texts.values()) == [600, 900, 1000]
    assert next(r for r in data.texts.values() if r.plan.checkpoint.step == 900).results[0].samples == ()
    assert all(not s.prompt for o in data.records[0].outcomes for s in getattr(o, "samples", ()))


def test_only_evaluations_of_this_run_are_still_to_come() -> None:
    sources = sources_of(RecordedRun(run_id=RUN.run_id, records=RUN.records[:8], reports=RUN.reports[:8]))
    queue = FakeQueue()
    for record in (*RUN.records[8:], *forgetting_run(run_id="other").records[:3]):
        queue.add(record.plan, now=NOW)
    queue.claim(worker="w", now=NOW, lease_until=NOW.replace(hour=13))
    assert read_run(RUN.run_id, replace(sources, queue=queue), now=NOW).unfinished == 2


def test_a_run_with_only_gaps_can_be_collected() -> None:
    data = read_run(
        RUN.run_id, sources_of(RecordedRun(run_id=RUN.run_id, records=(), reports=(), gaps=RUN.gaps)), now=NOW
    )
    assert (data.records, data.training.curves, len(data.conclusions.gaps)) == ((), (), 1)


def test_a_plain_name_is_its_own_file_name() -> None:
    assert report_file_name("tiny-forgetting_v1.2") == "tiny-forgetting_v1.2.html"


@pytest.mark.parametrize("run", ["../../etc/passwd", "a/b", "", "..", "日本", "x" * 300, "a b", ".hidden", "\ud83d"])
def test_a_file_name_never_leaves_its_folder(run: str) -> None:
    name = report_file_name(run)
    assert name == Path(name).name
    assert not name.startswith(".")
    assert len(name) < 120
    assert name.isascii()


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_runs_never_share_a_file(one: str, other: str) -> None:
    assert (report_file_name(one) == report_file_name(other)) == (one == other)


def test_a_page_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "run.html"
    write_page("old", path)
    write_page("neu ü", path)
    assert path.read_text(encoding="utf-8") == "neu ü"
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*file/run.html") as caught:
        write_page("html", tmp_path / "file" / "run.html")
    assert "--output" in caught.value.hint


def test_a_folder_in_the_way_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "run.html").mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        write_page("html", tmp_path / "run.html")
    assert [p.name for p in tmp_path.iterdir()] == ["run.html"]
