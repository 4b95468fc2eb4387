"""Recorded runs as a report gets them."""

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dashboards.data.checkpoint import CheckpointData
from dashboards.data.run import Conclusions, RunData, Training, newest_records
from dashboards.page.checkpoint import Sources, collect_checkpoint
from dashboards.views.ledger import LOST_SAMPLES
from dashboards.views.samples.packed import PageSamples
from eval_jobs.types import EvalRecord, ProbeResult, RequestTiming
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.records import RecordedRun, scores_of_run, without_samples
from tests.stored import store_run
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.records.policy import Policy

MADE_AT = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)


def sources_of(run: RecordedRun, policy: Policy | None = None) -> Sources:
    """Return where a report of `run` gets its facts: a history in memory that holds all of it."""
    history = FakeHistory()
    store_run(history, run)
    for acceptance in run.acceptances:
        history.append_acceptance(acceptance)
    history.append_stated_points(run.run_id, run.curves)
    return Sources(history=history, queue=FakeQueue(), policy=policy or Policy(phases=run.phases))


def checkpoint_data(run: RecordedRun, step: int) -> CheckpointData:
    """Return the data of a report of one checkpoint of `run`."""
    report = next(report for report in run.reports if report.step == step)
    return collect_checkpoint(report, sources_of(run), now=MADE_AT)


def timed(record: EvalRecord, *, requests: int = 40, slower: float = 1.0) -> EvalRecord:
    """Return the record with single requests behind its latencies."""
    probes = tuple(
        replace(probe, requests=tuple(_timing(at, slower) for at in range(requests)))
        if isinstance(probe, ProbeResult)
        else probe
        for probe in record.probes
    )
    return replace(record, probes=probes)


def _timing(position: int, slower: float) -> RequestTiming:
    return RequestTiming(
        position=position,
        ttft_ms=slower * (30 + position),
        tpot_ms=None if position == 0 else slower * (5 + position / 10),
        e2e_ms=slower * (200 + 3 * position),
    )


def run_data(run: RecordedRun, *, unfinished: int = 0) -> RunData:
    """Return the data of a report of `run`, with the texts of all samples at hand."""
    full = {record.plan.id: record for record in run.records}
    scores = scores_of_run(run)
    ledger = run_ledger(scores, Policy(phases=run.phases), run.incidents, details=LOST_SAMPLES)
    return RunData(
        run_id=run.run_id,
        records=newest_records(map(without_samples, run.records)),
        scores=scores,
        conclusions=Conclusions(
            reports=run.reports, gaps=run.gaps, incidents=run.incidents, acceptances=run.acceptances
        ),
        training=Training(curves=run.curves, phases=run.phases),
        texts=full,
        ledger=with_texts(ledger, lambda plan_id, _: full.get(plan_id)),
        unfinished=unfinished,
        made_at=MADE_AT,
    )


def unpacked(packed: str) -> Any:
    """Return the value of an index or a block of samples, as the report's script decodes it."""
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def shown_samples(packed: PageSamples) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield group, `lost` or `gained`, subset and fields of every sample."""
    index = unpacked(packed.index)
    for (group, kind, subsets), block in zip(index["blocks"], packed.blocks, strict=True):
        for subset, fields in zip(subsets, unpacked(block), strict=True):
            yield index["groups"][group]["name"], ("lost", "gained")[kind], index["subsets"][subset], fields
