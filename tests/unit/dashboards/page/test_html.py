import base64
import hashlib
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashboards.data.run import RunData
from dashboards.page.html import render_checkpoint, render_page
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, Outcome, ProbeFailure
from tests.judged_run import NOISE, judged_run
from tests.records import RecordedRun, forgetting_run, wide_run
from tests.reports import checkpoint_data, run_data
from tests.verdicts import reports_of
from tracker.domain.overview.run import SYMBOLS
from tracker.domain.records.calibration import NoiseAspect, NoiseOfRun, OutOfRange
from tracker.domain.records.display import clean
from tracker.domain.records.policy import Phase
from tracker.domain.records.reasons import Failed, FewRequests
from tracker.domain.records.types import VerdictWord

RUN = forgetting_run()
MAX_SCRIPT_BYTES = 15_000
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
"""Lone surrogates included: a JSON file can hold them."""


@dataclass
class Page(HTMLParser):
    """The tags of a page with the names of their attributes, and its text."""

    shape: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append(f"{tag} {' '.join(name for name, _ in attrs)}")
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self.shape.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html_of(data: RunData) -> str:
    return render_page(build_view(data), version="0.1.0")


def checkpoint_html(run: RecordedRun, step: int) -> str:
    return render_checkpoint(build_checkpoint_view(checkpoint_data(run, step)), version="0.1.0")


def parsed(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    return page


def hostile(text: str) -> RunData:
    """Return a run in which every text that comes from outside is `text`."""
    failed = Failed(message=text, error="E-X")
    small, judged = forgetting_run(samples=10), judged_run(subset=text, reason=text)
    records = tuple(_hostile_record(record, text) for record in small.records)
    reports = tuple(
        replace(
            report,
            run_id=text,
            verdicts=tuple(replace(v, reason=failed, benchmark=f"{v.benchmark}{text}") for v in report.verdicts),
            findings=tuple(replace(f, reason=failed, benchmark=f"{f.benchmark}{text}") for f in told.findings),
            latency=tuple(replace(v, reason=failed, load=text) for v in told.latency),
            noise=_hostile_noise(text),
        )
        for report, told in zip(small.reports, judged.reports, strict=True)
    )
    return run_data(
        RecordedRun(
            run_id=text,
            records=records,
            reports=reports,
            incidents=tuple(replace(e, benchmark=f"{e.benchmark}{text}") for e in judged.incidents),
            acceptances=tuple(replace(a, benchmark=f"{a.benchmark}{text}") for a in judged.acceptances),
            gaps=tuple(replace(g, message=text, hint=text, source_uri=text, code=text) for g in small.gaps),
            curves=tuple(replace(p, key=f"loss{text}") for p in small.curves),
            phases=(*small.phases[:1], Phase(name=text, from_step=600)),
        )
    )


def _hostile_noise(text: str) -> NoiseOfRun:
    named = tuple(replace(one, benchmark=text) for one in NOISE.benchmarks)
    jitter = OutOfRange(aspect=NoiseAspect.JITTER, value=0.042, limit=0.03, benchmark=text)
    return replace(NOISE, benchmarks=named, out_of_range=(jitter,))


def _hostile_record(record: EvalRecord, text: str) -> EvalRecord:
    assert record.engine is not None
    probes = tuple(
        replace(p, load=replace(p.load, name=text), message=text, hint=text)
        if isinstance(p, ProbeFailure)
        else replace(p, load=replace(p.load, name=text), first_error=text)
        for p in record.probes
    )
    return replace(
        record,
        plan=_hostile_plan(record.plan, text),
        outcomes=tuple(_hostile_outcome(o, text) for o in record.outcomes),
        probes=probes,
        engine=replace(record.engine, name=text, version=text, load_method=text, log=text),
    )


def _hostile_plan(plan: EvalPlan, text: str) -> EvalPlan:
    suite = plan.suite
    benchmarks = tuple(replace(b, name=f"{b.name}{text}", adapter=text, subsets=(text,)) for b in suite.benchmarks)
    return replace(
        plan,
        suite=replace(suite, name=text, benchmarks=benchmarks),
        serve=replace(plan.serve, args=(text,), dtype=text),
    )


def _hostile_outcome(outcome: Outcome, text: str) -> Outcome:
    name = f"{outcome.benchmark}{text}"
    if isinstance(outcome, BenchmarkFailure):
        return replace(outcome, benchmark=name, message=text, hint=text, code=text)
    samples = tuple(
        replace(s, prompt=text, target=text, answer=text, subset=text, detail=text) for s in outcome.samples
    )
    return replace(outcome, benchmark=name, metric=text, samples=samples)


PLAIN = parsed(html_of(hostile("xy")))


@pytest.mark.slow
@given(ANY_TEXT)
@example("<script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
@example("' onmouseover='alert(1)")
@example("</title></style></svg><script>alert(1)</script>")
@example("{{ 7 * 7 }}{% raw %}")
@example("<!-- --> ]]> &amp; &#60;")
@example("\x1b]0;x\x07\u202e\ud800\x00")
@example("<b>1 < 2 & 3 > 2</b>\n\n\ttabs\r\nand lines")
def test_any_text_survives_escaping_and_none_can_change_the_page_around_it(text: str) -> None:
    """Whatever the text, the tags and attributes of the page are those that a harmless text gives."""
    page = parsed(html_of(hostile(f"x{text}y")))
    assert _without_ticks(page) == _without_ticks(PLAIN)
    assert page.texts.count(clean(f"x{text}y")) >= 8  # prompts, targets, answers of two benchmarks


def _without_ticks(page: Page) -> list[str]:
    """Leave out the numbers on axes: a longer name at a line's end leaves room for fewer."""
    return [tag for tag in page.shape if tag not in ("text class text-anchor x y dy", "/text")]


def test_a_page_can_always_be_written() -> None:
    assert html_of(hostile("\ud83d lone \udc00 surrogates")).encode("utf-8")


def check_sound(html: str, *, beside: tuple[str, ...] = ()) -> None:
    """Whatever a page shows: its tags are closed, its ids are its own, it runs only our script and loads nothing."""
    page = parsed(html)
    open_tags: list[str] = []
    for tag in page.shape:
        if tag.startswith("/"):
            assert open_tags.pop() == tag[1:]
        elif tag.split()[0] not in {"meta", "link", "input"}:
            open_tags.append(tag.split()[0])
    assert open_tags == []
    assert len(page.ids) == len(set(page.ids))
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    assert {link for link in page.links if not link.startswith("#")} <= {"data:,", *beside}
    assert not [tag for tag in page.shape if tag.startswith(("iframe", "object", "img", "form"))]
    assert not [tag for tag in page.shape if " on" in tag]
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert {tag for tag in page.shape if tag.startswith("script")} <= {"script ", "script type id"}
    assert html.count("<script type=") == html.count('<script type="application/octet-stream" id="samples-')
    allowed = [
        f"script-src 'sha256-{one}'; require-trusted-types-for 'script'; trusted-types 'none'; " for one in hashes
    ]
    assert len(allowed) <= 1
    assert f"default-src 'none'; {''.join(allowed)}style-src 'unsafe-inline'; img-src data:;" in html
    assert all(len(script.encode()) <= MAX_SCRIPT_BYTES for script in scripts)
    assert not [word for word in ("url(", "@import") if word in html]


@pytest.mark.slow
def test_a_page_is_sound_and_loads_nothing() -> None:
    for run in (RUN, judged_run(), wide_run(checkpoints=45, benchmarks=16, samples=8)):
        check_sound(html_of(run_data(run)))


def test_every_table_has_a_caption_and_every_picture_a_title() -> None:
    html = html_of(run_data(judged_run()))
    assert html.count("<table") == html.count("<caption>")
    assert html.count('role="img"') == html.count("<desc ")


def test_a_verdict_cell_has_score_symbol_and_word() -> None:
    improved = (
        '<td class="v-improved" title="0.63 at step 400 -&gt; 0.84; lost 0 of 78 samples, gained 16">'
        '<b>0.838</b> <span class="said">▲ improved</span></td>'
    )
    assert improved in html_of(run_data(RUN))


def test_every_verdict_word_has_a_colour_and_is_shown() -> None:
    html = html_of(run_data(judged_run()))
    for word, symbol in SYMBOLS.items():
        assert f".v-{word.replace(' ', '-')}" in html.split("</style>")[0]
        assert f">{symbol} {word}</span>" in html or f">{symbol}</span> {word}</span>" in html


def test_a_run_without_findings_losses_and_latency_verdicts_has_no_empty_tables() -> None:
    html = html_of(run_data(RUN))
    assert 'class="judged"' not in html
    assert "#incidents" not in html
    run = judged_run()
    assert html_of(run_data(run)).count('class="judged"') == 4
    few = [replace(verdict, reason=FewRequests(needed=200), requests=32) for verdict in run.reports[-1].latency]
    reports = (*run.reports[:-1], replace(run.reports[-1], latency=tuple(few)))
    html = html_of(run_data(replace(run, reports=reports)))
    assert html.count('class="judged"') == 3
    assert html.count("p50 and p95 of load default: timed, not judged: ") == 1


def test_the_p_without_jitter_is_shown_in_the_evidence_alone() -> None:
    before, _, after = html_of(run_data(judged_run())).partition('<section id="evidence">')
    evidence, _, rest = after.partition("</section>")
    assert "samples only" in evidence
    assert "samples only" not in before + rest


def test_the_noise_is_shown_where_a_report_has_it() -> None:
    for run, is_shown in ((judged_run(), True), (forgetting_run(), False)):
        for html in (html_of(run_data(run)), checkpoint_html(run, 1000)):
            assert ("<dt>persistence</dt><dd>0.65 " in html) == is_shown
            assert ("The error rate was not shown for this noise" in html) == is_shown


def test_many_findings_losses_and_slower_checkpoints_are_folded() -> None:
    judged = judged_run()
    newest, length = judged.reports[-1], judged.reports[-1].latency
    slower = replace(judged.reports[0], latency=tuple(v for v in length if v.word is VerdictWord.REGRESSED) * 7)
    many = tuple(replace(newest.findings[0], subset=f"s{i}") for i in range(15))
    losses = tuple(replace(judged.incidents[0], opened_step=i) for i in range(16))
    reports = (slower, *judged.reports[1:-1], replace(newest, findings=many))
    html = html_of(run_data(replace(judged, reports=reports, incidents=losses, acceptances=())))
    for folded in ("6 more findings", "More incidents (4)", "6 more"):
        assert f"<summary>{folded}</summary>" in html


def test_latency_that_was_judged_without_a_measurement_is_shown() -> None:
    judged = judged_run()
    html = html_of(run_data(replace(judged, records=tuple(replace(r, probes=()) for r in judged.records))))
    assert "Latency verdicts at step 1000." in html
    assert "All numbers" not in html


def test_a_gap_is_a_row_that_says_why() -> None:
    assert (
        '<tr class="gap"><th scope="row" class="step">550</th><td colspan="3">not evaluated: it was'
        " deleted before it could be pinned (E-CKPT-VANISHED)</td></tr>"
    ) in html_of(run_data(RUN))


def test_the_life_of_a_sample_is_told_in_words() -> None:
    assert "incorrect at 100 to 200, correct at 300 to 700, incorrect at 800 to 1000" in html_of(run_data(RUN))


def test_a_run_with_only_gaps_has_a_page() -> None:
    html = html_of(run_data(RecordedRun(run_id="r", records=(), reports=(), gaps=RUN.gaps)))
    assert "nothing evaluated yet" in html
    assert "E-CKPT-VANISHED" in html
    assert 'href="#verdicts"' not in html


def test_records_that_were_not_judged_yet_do_not_break_the_page() -> None:
    html = html_of(run_data(RecordedRun(run_id="r", records=RUN.records[:2], reports=())))
    assert "nothing evaluated yet" in html


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_young_run_has_a_page(count: int) -> None:
    run = RecordedRun(run_id="r", records=RUN.records[:count], reports=reports_of(RUN.records[:count]))
    assert f"{count} checkpoint" in html_of(run_data(run))


@pytest.mark.slow
def test_paper_gets_every_score_of_many_benchmarks_in_parts() -> None:
    view = build_view(run_data(wide_run(checkpoints=45, benchmarks=23, samples=8)))
    paper = render_page(view, version="0").split('<table class="verdicts paper">')[1:]
    assert len(paper) == 3
    tables = [part.split("</table>")[0] for part in paper]
    assert [name for name in view.table.benchmarks if sum(f">{name}</th>" in t for t in tables) != 1] == []
    assert sum(table.count("<td") for table in tables) == 45 * 23
    assert "benchmarks 17 to 23 of 23" in tables[2]


@pytest.mark.slow
def test_a_long_run_of_many_benchmarks_stays_small() -> None:
    html = html_of(run_data(wide_run(checkpoints=100, benchmarks=30, samples=4)))
    assert len(html.encode()) < 1_500_000
