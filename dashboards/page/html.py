"""View -> one self-contained HTML file: no request, dark and light, print; readable without its script.

All values are cleaned (`records.display.clean`) and escaped here, because some are written by models or users.
The page also forbids requests and every script but `templates/samples.js` by a Content-Security-Policy, so a mistake
here could not run any.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dashboards.charts.ecdf import draw_ecdf, legend_line
from dashboards.charts.figures import Figure
from dashboards.charts.latency_spread import SHOWN
from dashboards.charts.load_curve import draw_curves
from dashboards.charts.svg import draw, legend_mark
from dashboards.views.checkpoint import CheckpointView
from dashboards.views.run import RunView
from dashboards.views.runs import RunsView
from dashboards.views.samples.changes import MAX_LISTED
from tracker.domain.compare.run_text import SCOPE
from tracker.domain.overview.run import SYMBOLS
from tracker.domain.records.display import clean, count_text, one_line
from tracker.domain.sweeps.board import LoadCurve

WIDE_WIDTH = 1032
NARROW_WIDTH = 380
SMALL_WIDTH = 330
FIRST_FIGURES = 13
"""Curves, or heatmap rows, that are shown without a click."""
FIRST_CASES = 12
"""Rows of evidence, findings, incidents and similar lists that are shown without a click."""
FIRST_TILES = 12
FIRST_OPEN = 8
"""Open incidents that are listed at the top."""


def render_page(view: RunView, *, version: str) -> str:
    """Return the whole HTML document."""
    template = _environment().get_template("report.html.j2")
    return template.render(view=view, version=version, first_figures=FIRST_FIGURES)


def render_checkpoint(view: CheckpointView, *, version: str) -> str:
    """Return the whole HTML document of one checkpoint."""
    template = _environment().get_template("checkpoint.html.j2")
    return template.render(view=view, version=version, max_listed=MAX_LISTED, percentiles=SHOWN)


def render_runs(view: RunsView, *, version: str) -> str:
    """Return the whole HTML document of several runs."""
    return _environment().get_template("runs.html.j2").render(view=view, version=version, scope=SCOPE)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        figure=_figure,
        curves=_curves,
        small=lambda figure: _markup(draw(figure, width=SMALL_WIDTH)),
        ecdf=lambda figure: _markup(draw_ecdf(figure, width=SMALL_WIDTH)),
        key=lambda curve: _markup(legend_line(curve.slot, dashed=curve.slot > 0)),
        strip=lambda row: _markup(row.strip),
    )
    script = (files("dashboards") / "templates" / "samples.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(script=_markup(script), script_hash=f"sha256-{digest}")
    environment.globals.update(
        first_cases=FIRST_CASES, first_tiles=FIRST_TILES, first_open=FIRST_OPEN, count=count_text, symbols=SYMBOLS
    )
    return environment


def _harmless(value: object) -> object:
    """Clean every text before it is escaped; `Markup` is returned unchanged."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value


def _figure(figure: Figure) -> Markup:
    """Return a figure for wide screens and paper, and one for narrow screens with a legend below."""
    lines = [line for panel in figure.panels for line in panel.lines if line.marked and line.points]
    named = {line.name: line for line in lines}
    keys = [Markup("<li>{} {}</li>").format(_markup(legend_mark(n.slot)), n.label or n.name) for n in named.values()]
    return Markup(
        '<figure><div class="wide-only">{}</div><div class="narrow">{}<ul class="keys">{}</ul></div></figure>'
    ).format(_markup(draw(figure, width=WIDE_WIDTH)), _markup(draw(figure, width=NARROW_WIDTH)), Markup().join(keys))


def _curves(ident: str, curves: Sequence[LoadCurve]) -> Markup:
    """Return the chart for wide screens and paper, and for narrow screens, with a legend below."""
    names = enumerate(one_line(curve.target) for curve in curves)
    keys = [Markup("<li>{} {}</li>").format(_markup(legend_mark(slot)), name) for slot, name in names]
    wide, narrow = (_markup(draw_curves(ident, curves, width=width)) for width in (WIDE_WIDTH, NARROW_WIDTH))
    return Markup(
        '<figure><div class="wide-only">{}</div><div class="narrow">{}</div><ul class="keys">{}</ul></figure>'
    ).format(wide, narrow, Markup().join(keys))


def _markup(own: str) -> Markup:
    return Markup(own)  # noqa: S704 - our script, or an SVG whose texts dashboards.charts.svg and .heatmap escape
