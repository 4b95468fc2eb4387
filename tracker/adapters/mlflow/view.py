"""A ready-made page of charts in MLflow, kept in a tag of the experiment. Pure.

MLflow's "Share" button stores the state of the page in such a tag; the tracker writes the same tag. The format is
undocumented (it is that of MLflow 3.17): if another version does not support it, the link still opens the runs page.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Iterable
from urllib.parse import quote

from eval_jobs.identity import content_hash
from tracker.adapters.mlflow.runs import KEY_TAG
from tracker.domain.tracking.trainer_run import LOSS_KEY

VIEW_KEY = content_hash("checkpoint-tracker")
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"

_PREFIX = "deflate;"

LOSS, SCORES, LATENCY, COVERAGE = "Training loss", "bench", "Latency", "Coverage"
"""Sections of the page. MLflow itself also puts new metrics named `bench/...` into `bench`."""

LATENCY_KEYS = ("ttft_ms_p50", "tpot_ms_p50", "output_tokens_per_s")

MAX_LINES = 8
"""MLflow draws all lines of a run in one colour: a chart of several metrics is readable if most are equal."""

MAX_CHARTS = 50
"""Keeps the tag far below MLflow's size limit; MLflow adds charts for other metrics automatically."""

PARAM_COLUMNS = ("learning_rate", "per_device_train_batch_size", "seed", "lora_r", "base_model")
"""Parameters in the table of runs; the others are in MLflow's comparison of selected runs."""

GENERATED = ("coverage", "perf", "train", "truncated")
"""Sections that MLflow generates below ours, with one chart per metric; they start closed."""


def view_link(base_url: str, experiment_id: str) -> str:
    """Return the address of the page on the MLflow server at `base_url`."""
    return f"{base_url.rstrip('/')}/{_view_path(experiment_id)}"


def note_links(experiment_id: str, registered_model: str, samples_experiment_id: str = "") -> str:
    """Return the Markdown links for a run's description: curves, checkpoints, best checkpoints, samples.

    Args:
        experiment_id: of the run.
        registered_model: model whose aliases point to the best checkpoints; empty: none.
        samples_experiment_id: experiment with samples for side-by-side comparison; empty: none.
    """
    pages = {
        "Curves": _view_path(experiment_id),
        "All checkpoints": f"#/experiments/{experiment_id}/models?workflowType=machine_learning",
    }
    if registered_model:
        pages["Best checkpoints"] = f"#/models/{quote(registered_model, safe='')}"
    if samples_experiment_id:
        pages["Samples before and after"] = f"#/experiments/{samples_experiment_id}/evaluation-runs?workflowType=genai"
    return " · ".join(f"[{name}]({path})" for name, path in pages.items())


def samples_link(experiment_id: str, *, before: str, after: str) -> str:
    """Return the path of MLflow's page that shows two evaluation runs side by side, sample by sample."""
    query = f"selectedRunUuid={after}&compareToRunUuid={before}&workflowType=genai"
    return f"#/experiments/{experiment_id}/evaluation-runs?{query}"


def view_state(metric_keys: Iterable[str], previous: str | None) -> str:
    """Return the tag's value for a page with `metric_keys` and the keys of `previous`, the tag's last value."""
    keys = set(metric_keys) | (_keys_of(previous) if previous else set())
    charts = [
        _line_chart(section, selected) for section, groups in _charts(keys).items() for selected in groups if selected
    ]
    state = {
        "searchFilter": f"tags.`{KEY_TAG}` != ''",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [
            "attributes.`Models`",
            "tags.`verdict`",
            *(f"params.`{name}`" for name in PARAM_COLUMNS),
            *(f"metrics.`{key}`" for key in _starting("bench/", keys)[:MAX_LINES]),
        ],
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsHiddenMode": "FIRST_10_RUNS",
        "runsVisibilityMap": {},
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "groupBy": None,
        "groupsExpanded": {},
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        "chartsSearchFilter": "",
        "compareRunCharts": charts,
        "compareRunSections": [
            _section(LOSS, columns=1),
            _section(SCORES, columns=3),
            _section(LATENCY, columns=3),
            _section(COVERAGE, columns=1),
            *(_section(name, columns=3, is_open=False) for name in GENERATED),
        ],
    }
    return _PREFIX + base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()


def _view_path(experiment_id: str) -> str:
    # Without `workflowType` MLflow treats every experiment as one about agents, and hides the models.
    query = f"viewStateShareKey={VIEW_KEY}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{experiment_id}/runs?{query}"


def _charts(keys: set[str]) -> dict[str, list[list[str]]]:
    """Return for each section the metric keys of each chart."""
    # If a trainer logs `loss`, then `train_loss` is its average over the run.
    loss = [next((key for key in ("loss", "train_loss") if key in keys), ""), LOSS_KEY]
    return {
        # Both in one chart: of two runs, one may have the trainer's own curve and one ours.
        LOSS: [[key for key in loss if key in keys]],
        SCORES: [[key] for key in _starting("bench/", keys)[:MAX_CHARTS]],
        LATENCY: [[key] for end in LATENCY_KEYS for key in _starting("perf/", keys) if key.endswith(end)],
        COVERAGE: [_starting("coverage/", keys)[:MAX_LINES]],
    }


def _starting(prefix: str, keys: set[str]) -> list[str]:
    return sorted(key for key in keys if key.startswith(prefix))


def _section(name: str, *, columns: int, is_open: bool = True) -> dict[str, object]:
    return {
        "uuid": content_hash(name),
        "name": name,
        "display": is_open,
        "columns": columns,
        "cardHeight": 300,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
    }


def _line_chart(section: str, keys: list[str]) -> dict[str, object]:
    return {
        "uuid": content_hash([section, keys[0]]),
        "type": "LINE",
        "displayName": keys[0],
        "metricSectionId": content_hash(section),
        "metricKey": keys[0],
        "selectedMetricKeys": keys,
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "scaleType": "linear",
        "range": {},
        "lineSmoothness": 0,
        "runsCountToCompare": 10,
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "deleted": False,
        "isGenerated": False,
    }


def _keys_of(value: str) -> set[str]:
    """Return the metric keys on the page; none if the tag has another format."""
    try:
        state = json.loads(zlib.decompress(base64.b64decode(value.removeprefix(_PREFIX))))
        return {str(key) for chart in state["compareRunCharts"] for key in chart["selectedMetricKeys"]}
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError):
        return set()
