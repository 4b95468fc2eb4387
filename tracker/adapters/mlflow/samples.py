"""Writes samples of two checkpoints to MLflow, as evaluation runs that its comparison page shows side by side.

One sheet (one benchmark at one checkpoint) is one evaluation run of the experiment `NAME/samples`, separate from that
of the training runs. One sample is one trace with its score as an assessment. `mlflow.genai.evaluate` would write the
same rows, but with random ids, and it takes seconds to import. Here ids are derived from those of the run and the
sample, so writing a sheet again after a kill creates no duplicate.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run
from mlflow.entities.assessment import (
    Assessment,
    AssessmentError,
    AssessmentSource,
    Expectation,
    Feedback,
)
from mlflow.entities.span import Span
from mlflow.entities.trace_info import TraceInfo
from mlflow.entities.trace_location import TraceLocation
from mlflow.entities.trace_state import TraceState
from mlflow.exceptions import RestException
from mlflow.tracing.client import TracingClient

from eval_jobs.identity import content_hash
from eval_jobs.types import SampleStatus
from tracker.adapters.mlflow import runs
from tracker.adapters.mlflow.address import public
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.errors_sql import mapped_mlflow_errors
from tracker.adapters.mlflow.store import refresh_note
from tracker.adapters.mlflow.sweeps import dataset_input
from tracker.adapters.mlflow.view import samples_link
from tracker.domain.compare.sample_pages import SamplePage, SampleRow, SampleSheet
from tracker.domain.records.tracking import TrackedDataset
from tracker.domain.tracking.batch import timestamp_ms

SAMPLES_KEY_TAG = "tracker.samples_key"
KIND = "genai_development"
"""Without it MLflow hides the page of evaluation runs in its "Model training" mode."""
NOT_KEPT = "(deleted)"
MAX_SPANS = 25
"""Spans in one request: some hundred kilobytes if texts are long."""


def write_pages(settings: runs.TrackingSettings, pages: Sequence[SamplePage]) -> Iterator[str]:
    """Write the sheets that do not exist yet, and yield the link of each page as soon as it can be opened.

    Links are relative to the server's address.

    Raises:
        TrackingUnreachable, StoreError: as `mapped_mlflow_errors`.
        ConfigError: the experiment was deleted.
    """
    with mapped_mlflow_errors(public(settings.uri)):
        client, traces = connect(settings.uri), TracingClient(settings.uri)
        experiment = _experiment(client, settings)
        for run_id in dict.fromkeys(sheet.checkpoint.run_id for page in pages for sheet in (page.before, page.after)):
            refresh_note(client, settings, run_id)  # it links to the samples from now on
        for page in pages:
            run_ids = []
            for sheet in (page.before, page.after):
                key = f"{runs.run_key(settings, sheet.checkpoint.run_id)}-{sheet.key}"
                run = _find_or_create(client, experiment.experiment_id, sheet, key)
                if run.info.status != "FINISHED":
                    _fill(client, traces, run, sheet)
                run_ids.append(run.info.run_id)
            yield samples_link(experiment.experiment_id, before=run_ids[0], after=run_ids[1])


def _experiment(client: MlflowClient, settings: runs.TrackingSettings) -> Experiment:
    own = replace(settings, experiment=runs.samples_experiment(settings))
    experiment = runs.get_or_create_experiment(client, own)
    if experiment.tags.get(runs.KIND_TAG) != KIND:
        client.set_experiment_tag(experiment.experiment_id, runs.KIND_TAG, KIND)
    return experiment


def _find_or_create(client: MlflowClient, experiment_id: str, sheet: SampleSheet, key: str) -> Run:
    found = client.search_runs([experiment_id], f"tags.`{SAMPLES_KEY_TAG}` = '{key}'")
    return min(found, key=lambda run: (run.info.status != "FINISHED", run.info.run_id), default=None) or (
        client.create_run(
            experiment_id,
            run_name=sheet.name,
            # In the same call as the run itself, so that no crash leaves a run that cannot be found again.
            tags={
                SAMPLES_KEY_TAG: key,
                runs.SOURCE_TAG: runs.OUR_SOURCE,
                "mlflow.runType": "genai_evaluate",
                "tracker.run": sheet.checkpoint.run_id,
                "tracker.step": str(sheet.checkpoint.step),
                "tracker.benchmark": sheet.benchmark,
                "tracker.samples": str(sheet.choice),
            },
        )
    )


def _fill(client: MlflowClient, traces: TracingClient, run: Run, sheet: SampleSheet) -> None:
    """Write all samples of a sheet; existing ones are overwritten with the same content."""
    run_id, experiment_id = run.info.run_id, run.info.experiment_id
    dataset = TrackedDataset(name=sheet.benchmark, digest=sheet.fingerprint, source=sheet.benchmark)
    client.log_inputs(run_id, datasets=[dataset_input(dataset)])
    # MLflow lists the latest first.
    times = range(timestamp_ms(sheet.checkpoint), 0, -1)
    rows = [(row, content_hash([run_id, row.sample_id]), ms) for row, ms in zip(sheet.rows, times, strict=False)]
    for row, key, ms in rows:  # before their spans: the reverse order takes MLflow over 50% longer
        traces.start_trace(_trace(row, sheet, run, key, ms))
    spans = [_span(row, sheet, key, ms) for row, key, ms in rows]
    for start in range(0, len(spans), MAX_SPANS):
        _log_spans(traces, experiment_id, spans[start : start + MAX_SPANS])
    client.set_terminated(run_id, "FINISHED")


def _log_spans(traces: TracingClient, experiment_id: str, spans: list[Span]) -> None:
    """Write spans in one request, or in one each: servers 3.4 and 3.5 accept only one trace in a request."""
    try:
        traces.log_spans(experiment_id, spans)
    except RestException:
        for span in spans:
            traces.log_spans(experiment_id, [span])


def _span(row: SampleRow, sheet: SampleSheet, key: str, time_ms: int) -> Span:
    asked = {"benchmark": sheet.benchmark, "subset": row.subset, "prompt": row.prompt}
    attributes = {
        "mlflow.traceRequestId": f"tr-{key}",
        "mlflow.spanType": "LLM",
        "mlflow.spanInputs": {name: text for name, text in asked.items() if text},
        "mlflow.spanOutputs": _answer(row),
    }
    return Span.from_dict(
        {
            "trace_id": _base64(key),
            "span_id": _base64(content_hash(key)[:16]),
            "parent_span_id": None,
            "name": sheet.benchmark,
            "start_time_unix_nano": time_ms * 1_000_000,
            "end_time_unix_nano": time_ms * 1_000_000,
            "events": [],
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
        }
    )


def _base64(key: str) -> str:
    return base64.b64encode(bytes.fromhex(key)).decode()


def _answer(row: SampleRow) -> str:
    if row.answer is None:
        return NOT_KEPT
    return row.answer


def _trace(row: SampleRow, sheet: SampleSheet, run: Run, key: str, time_ms: int) -> TraceInfo:
    assessments = [_score(row, sheet, time_ms)]
    if row.target:
        source = AssessmentSource("CODE", "data")
        assessments.append(Expectation(name="target", value=row.target, source=source, create_time_ms=time_ms))
    for assessment in assessments:
        assessment.assessment_id = f"a-{content_hash([key, assessment.name])}"
        assessment.last_update_time_ms = time_ms
    tags = {"benchmark": sheet.benchmark, "subset": row.subset, "status": str(row.status), "sample": row.sample_id}
    return TraceInfo(
        trace_id=f"tr-{key}",
        trace_location=TraceLocation.from_experiment_id(run.info.experiment_id),
        request_time=time_ms,
        execution_duration=0,
        state=TraceState.OK if row.score is not None else TraceState.ERROR,
        request_preview=row.title,
        response_preview=_answer(row)[:1000],
        trace_metadata={"mlflow.sourceRun": run.info.run_id},
        tags={"mlflow.traceName": sheet.benchmark} | {name: value for name, value in tags.items() if value},
        assessments=assessments,
    )


def _reason(row: SampleRow) -> str:
    return row.detail or ("max_tokens reached" if row.status is SampleStatus.TRUNCATED else "")


def _score(row: SampleRow, sheet: SampleSheet, time_ms: int) -> Assessment:
    """Return the score under the benchmark's name; without a score, the page shows an error and counts no answer."""
    value: str | float | None = row.score
    if sheet.is_right_or_wrong and row.score is not None:
        value = "yes" if row.score == 1 else "no"  # the two values that MLflow shows as Pass and Fail
    reason = _reason(row)
    return Feedback(
        name=sheet.benchmark,
        value=value,
        source=AssessmentSource("CODE", runs.OUR_SOURCE),
        error=None if row.score is not None else AssessmentError(str(row.status).upper(), reason or str(row.status)),
        rationale=reason or None,
        create_time_ms=time_ms,
    )
