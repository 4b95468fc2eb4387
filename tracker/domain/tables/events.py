"""The table of the samples that were learned, forgotten or learned again. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from tracker.domain.forgetting.sample_lives import event_matrix, lives_of, sample_changes
from tracker.domain.records.losses import Measure
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.tables.catalog import EVENTS
from tracker.domain.tables.columns import Rows


def events_table(runs: Iterable[RunScores], benchmarks: Sequence[str], min_coverage: float) -> Rows:
    """Return the table `events` of some benchmarks.

    Args:
        runs: without checkpoints that training left behind.
        benchmarks: the newest series of each in each suite counts, as in the forgetting ledger.
        min_coverage: of a checkpoint that counts.
    """
    found: list[tuple[str, int, str, str, str, str]] = []
    for scores in runs:
        for benchmark in benchmarks:
            for suite in dict.fromkeys(key.suite for key in scores.series if key.benchmark == benchmark):
                found += _of_series(scores.run_id, scores.of(benchmark, suite)[-1], min_coverage)
    columns = zip(*sorted(found), strict=True) if found else [()] * len(EVENTS.names)
    return dict(zip(EVENTS.names, map(list, columns), strict=True))


def _of_series(run: str, series: BenchmarkSeries, min_coverage: float) -> Iterator[tuple[str, int, str, str, str, str]]:
    rows = series.whole_rows(min_coverage)
    changes = event_matrix(lives_of(series.matrices[Measure.SCORE], rows))
    steps = [series.steps[row] for row in rows]
    for row, sample, change in sample_changes(changes):
        subset, sample_id = series.subsets[sample], series.sample_ids[sample]
        yield run, steps[row], series.key.benchmark, subset, str(change), sample_id
