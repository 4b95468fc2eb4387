from dataclasses import replace
from xml.etree import ElementTree as ET

from dashboards.charts.figures import Absence, Figure, Line, Panel, Point
from dashboards.charts.svg import MARKERS, draw, legend_mark, marker
from tracker.domain.records.policy import Phase

LINE = Line(
    name="sums",
    points=(
        Point(step=100, value=0.25, low=0.2, high=0.3, tip="0.250"),
        Point(step=200, value=0.75, low=0.7, high=0.8, tip="0.750"),
    ),
    label="sums ▲ improved",
)
FIGURE = Figure(
    ident="s",
    title="Scores",
    description="sums rises",
    panels=(Panel(title="Score", lines=(LINE,), low=0, high=1, height=100),),
    x_min=100,
    x_max=300,
    phases=(Phase(name="two", from_step=200),),
)


def test_a_figure_is_drawn_with_axis_band_line_markers_and_tips() -> None:
    assert draw(FIGURE, width=400).replace("><", ">\n<") == (
        """\
<svg class="chart" viewBox="0 0 400 148" width="400" height="148" role="img" aria-labelledby="s-400-t s-400-d">
<title id="s-400-t">Scores</title>
<desc id="s-400-d">sums rises</desc>
<path class="phase" d="M216 24V124"/>
<text class="phase-name" x="220" y="15">two</text>
<text class="ptitle" x="46" y="15">Score</text>
<path class="grid" d="M46 124H386"/>
<text class="tick" text-anchor="end" x="40" y="124" dy="4">0</text>
<path class="grid" d="M46 74H386"/>
<text class="tick" text-anchor="end" x="40" y="74" dy="4">0.5</text>
<path class="grid" d="M46 24H386"/>
<text class="tick" text-anchor="end" x="40" y="24" dy="4">1</text>
<path class="band s0" d="M46 94L216 44L216 54L46 104Z"/>
<path class="line s0" d="M46 99L216 49"/>
<path class="m s0" d="M42 99a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z"/>
<path class="m s0" d="M212 49a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z"/>
<text class="tick" x="0" y="124" dy="14">step</text>
<text class="tick" text-anchor="middle" x="46" y="124" dy="14">100</text>
<text class="tick" text-anchor="middle" x="131" y="124" dy="14">150</text>
<text class="tick" text-anchor="middle" x="216" y="124" dy="14">200</text>
<text class="tick" text-anchor="middle" x="301" y="124" dy="14">250</text>
<text class="tick" text-anchor="end" x="396" y="124" dy="14">300</text>
<g class="hit">
<rect x="46" y="24" width="85" height="100"/>
<g class="tip">
<path class="cursor" d="M46 24V124"/>
<rect class="tipbox" x="58" y="30" width="99" height="44" rx="5"/>
<text class="tiphead" x="68" y="47">step 100</text>
<path class="m s0" d="M68 58a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z"/>
<text x="84" y="62">sums 0.250</text>
</g>
</g>
<g class="hit">
<rect x="131" y="24" width="255" height="100"/>
<g class="tip">
<path class="cursor" d="M216 24V124"/>
<rect class="tipbox" x="228" y="30" width="99" height="44" rx="5"/>
<text class="tiphead" x="238" y="47">step 200</text>
<path class="m s0" d="M238 58a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z"/>
<text x="254" y="62">sums 0.750</text>
</g>
</g>
</svg>"""
    )


def test_every_drawing_is_well_formed() -> None:
    absent = Absence(step=250, text='step 250: <gone> & "lost" \' \x00')
    panel = replace(FIGURE.panels[0], absences=(absent, replace(absent, slot=3)))
    hostile = replace(FIGURE, title="<script>alert(1)</script>", description="</svg>\ud800", panels=(panel, panel))
    for width in (380, 1032):
        root = ET.fromstring(draw(hostile, width=width))  # noqa: S314 - our own drawing
        assert root[0].text == "<script>alert(1)</script>"
        assert not root.findall(".//script")


def test_names_of_lines_stand_at_their_ends_only_where_there_is_room() -> None:
    assert ">sums ▲ improved</text>" in draw(FIGURE, width=1032)
    assert ">sums ▲ improved</text>" not in draw(FIGURE, width=380)


def test_a_long_name_is_cut_in_its_middle_and_keeps_its_verdict() -> None:
    long = replace(LINE, label=f"{'x' * 80} ▼▼ forgotten")
    drawing = draw(replace(FIGURE, panels=(replace(FIGURE.panels[0], lines=(long,)),)), width=1032)
    assert f">{'x' * 19}…x ▼▼ forgotten</text>" in drawing


def test_a_lone_point_between_two_holes_can_be_seen() -> None:
    points = tuple(Point(step=step, value=0.5) for step in range(100, 300))
    line = replace(LINE, points=points, breaks=(150, 151))
    drawing = draw(replace(FIGURE, tips=False, panels=(replace(FIGURE.panels[0], lines=(line,)),)), width=380)
    assert drawing.count('class="m s0"') == 1


def test_phases_begin_where_training_changed() -> None:
    from_the_start = replace(FIGURE, phases=(Phase(name="one", from_step=0), Phase(name="two", from_step=100)))
    assert 'class="phase"' not in draw(from_the_start, width=380), "it separates nothing"
    over_the_title = replace(FIGURE, phases=(Phase(name="two", from_step=110),))
    assert '<text class="phase-name" x="67" y="36">two</text>' in draw(over_the_title, width=400)


def test_lines_differ_by_shape_and_not_only_by_colour() -> None:
    assert len({marker(slot, 10, 10).split('d="')[1] for slot in range(len(MARKERS))}) == len(MARKERS)
    assert legend_mark(9).count("s1") == 2, "the line with its marker"


def test_columns_too_narrow_for_a_pointer_have_no_tips() -> None:
    points = tuple(Point(step=step, value=0.5) for step in range(200))
    figure = replace(
        FIGURE, x_min=0, x_max=199, panels=(replace(FIGURE.panels[0], lines=(replace(LINE, points=points),)),)
    )
    assert draw(figure, width=1032).count('class="hit"') == 200
    assert draw(figure, width=380).count('class="hit"') == 0


def test_a_tip_that_would_leave_the_figure_opens_to_the_left() -> None:
    line = replace(LINE, points=(*LINE.points, Point(step=300, value=1.0, tip="1.000 ▲ improved and more")))
    drawing = draw(replace(FIGURE, panels=(replace(FIGURE.panels[0], lines=(line,)),)), width=400)
    assert '<text class="tiphead" x="151"' in drawing


def test_phases_that_follow_closely_do_not_write_over_each_other() -> None:
    close = (
        Phase(name="a very long name of a phase", from_step=150),
        Phase(name="next", from_step=160),
        Phase(name="last", from_step=299),
    )
    drawing = draw(replace(FIGURE, phases=close), width=1032)
    assert drawing.count('class="phase"') == 3
    names = [part.split("<")[0].split(">")[1] for part in drawing.split('class="phase-name"')[1:]]
    assert names == ["a …se", "next", "last"]  # at the edge, below the other names and before its line
    assert drawing.split(">last<")[0].endswith('text-anchor="end"')


def test_long_names_stay_inside_a_small_figure() -> None:
    line = replace(LINE, name="n" * 200)
    panel = replace(FIGURE.panels[0], title=f"{'t' * 200} ▼▼ forgotten", lines=(line,))
    drawing = draw(replace(FIGURE, panels=(panel,)), width=330)
    assert "▼▼ forgotten</text>" in drawing
    widest = max(float(part.split('"')[0]) for part in drawing.split('class="tipbox"')[1].split('width="')[1:2])
    assert widest <= 330
    assert "n" * 60 not in drawing
