"""What repeating an evaluation changes: one checkpoint evaluated twice, for each benchmark. Pure.

For n samples with scores x and y in the two passes, let d = y - x. The variance of a sample's score is E d^2 / 2, and
that of the mean of n samples is `noise`^2 = sum d^2 / (2 n^2): the noise of one evaluation by decoding alone. The
standard deviation of the difference of two evaluations, a verdict's delta, is sqrt(2) times larger.

Intervals are those of Clopper and Pearson 1934, also for squares of graded scores, whose sum replaces the number of
flips: of all values between 0 and 1 with a given mean, 0/1 values have the largest variance. No flips in 150 samples
give an upper limit of 2.4 %.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from scipy.special import betaincinv

from eval_jobs.errors import Incomparable
from eval_jobs.identity import serve_settings
from eval_jobs.types import BenchmarkFailure, EngineInfo, EvalRecord, EvalResult, Outcome
from tracker.domain.records.calibration import AskedTwice, Calibration, Fitness, Repetition
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.pairing import all_differences
from tracker.domain.scores.statistics.paired import paired_test
from tracker.domain.scores.summary import first_detail, sample_means

SHIFT_P = 0.001
"""Below this p the means of the passes differ by more than flips explain. One in 1,000 healthy benchmarks does."""

LEVEL = 0.95
_NORMAL_975 = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class DecodingNoise:
    """Standard deviation of an evaluation's mean score due to decoding, with 95 % interval, in score units."""

    sd: float
    low: float
    high: float


def calibration_of(record: EvalRecord, *, min_coverage: float) -> Calibration:
    """Return the calibration of a record.

    A benchmark is a failure if less than `min_coverage` of its samples have a score in both passes.
    """
    names = [benchmark.name for benchmark in record.plan.suite.benchmarks]
    tried = [_tried(name, record.outcomes, min_coverage) for name in names]
    return Calibration(
        plan=record.plan,
        engine=None if record.engine is None else replace(record.engine, canaries=()),  # long, and never displayed
        benchmarks=tuple(t for t in tried if isinstance(t, AskedTwice)),
        failures=tuple(t for t in tried if isinstance(t, BenchmarkFailure)),
        started_at=record.started_at,
        finished_at=record.finished_at,
    )


def asked_twice(first: EvalResult, second: EvalResult) -> AskedTwice | None:
    """Return the differences between two results of one benchmark; None if no sample has a score in both."""
    before, after = sample_means(first), sample_means(second)
    common = [key for key in before if key in after]
    if not common:
        return None
    x, y = (np.array([means[key].score for key in common], dtype=np.float64) for means in (before, after))
    d = y - x
    texts, other = _texts(first), _texts(second)
    changed = np.array([texts[key] != other[key] for key in common], dtype=bool)
    clusters = cluster_index([before[key].cluster_id for key in common])
    return AskedTwice(
        benchmark=first.benchmark,
        fingerprint=first.fingerprint,
        planned=len({s.sample_id for s in chain(first.samples, second.samples)}),
        samples=len(common),
        flips=int(np.count_nonzero(d)),
        other_texts=int(np.count_nonzero(changed & (d == 0))),
        squares=float(d @ d),
        largest=float(np.abs(d).max()),
        first_mean=float(x.mean()),
        second_mean=float(y.mean()),
        p_shift=paired_test(y, x, clusters).p_two_sided,
    )


def share_interval(count: float, n: int) -> tuple[float, float]:
    """Return the limits of the 95 % interval of Clopper and Pearson for a share of `count` of `n`, n >= 1.

    `count` may be a sum of values between 0 and 1.
    """
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def noise_of(asked: AskedTwice) -> DecodingNoise:
    """Return the noise of one evaluation's mean score due to decoding alone."""
    n, unit = asked.samples, max(1.0, asked.largest)
    low, high = share_interval(min(asked.squares / unit**2, float(n)), n)
    # A whole pass shifted: the variance estimated from a single difference is half of its square.
    moved = abs(shift_of(asked)) / math.sqrt(2)
    return DecodingNoise(
        sd=max(math.sqrt(asked.squares / 2) / n, moved),
        low=unit * math.sqrt(low / (2 * n)),
        high=max(unit * math.sqrt(high / (2 * n)), moved),
    )


def shift_of(asked: AskedTwice) -> float:
    """Return the shift of the second pass as a whole; 0 if chance explains it."""
    if asked.p_shift < SHIFT_P:
        return asked.second_mean - asked.first_mean
    return 0.0


def fitness(asked: AskedTwice, min_effect: float) -> Fitness:
    """Return whether repetition alone changes the difference of two evaluations by more than `min_effect`.

    The interval limits of the difference's standard deviation, sqrt(2) times `noise`, are compared, so that UNFIT and
    FIT are proven, not suspected. A shift of a whole pass counts with the lower limit of its interval.
    """
    noise = noise_of(asked)
    flips_alone = math.sqrt(asked.squares) / asked.samples
    surely_moved = abs(shift_of(asked)) - _NORMAL_975 * flips_alone
    if math.sqrt(2) * noise.low > min_effect or surely_moved > min_effect:
        return Fitness.UNFIT
    if math.sqrt(2) * noise.high <= min_effect:
        return Fitness.FIT
    return Fitness.UNSURE


def repetition_of(
    calibrations: Iterable[Calibration], record: EvalRecord, benchmark: str, *, min_effect: float
) -> Repetition | None:
    """Return the newest calibration of a benchmark that is valid for `record`; else the run's newest, as stale.

    It is valid for the same benchmark and settings, with the same serve settings, engine version and kind of device:
    what cannot change a score can change its noise. The run that it was made in does not matter. None: never
    calibrated.
    """
    known: list[tuple[str, Calibration, AskedTwice]] = []
    for calibration in calibrations:
        for asked in calibration.benchmarks:
            if asked.benchmark == benchmark:
                why = _changed(calibration, asked, record)
                if not why or calibration.plan.checkpoint.run_id == record.plan.checkpoint.run_id:
                    known.append((why, calibration, asked))
    if not known:
        return None
    why, calibration, asked = max(known, key=lambda one: (not one[0], one[1].finished_at, one[1].plan.id))
    return repetition(calibration, asked, min_effect, stale=why)


def repetitions_of(
    calibrations: Sequence[Calibration], record: EvalRecord, *, min_effect: float
) -> tuple[Repetition, ...]:
    """Return `repetition_of` for the benchmarks of a record, in its order, without those never calibrated."""
    names = dict.fromkeys(outcome.benchmark for outcome in record.outcomes)
    found = (repetition_of(calibrations, record, name, min_effect=min_effect) for name in names)
    return tuple(one for one in found if one is not None)


def repetition(calibration: Calibration, asked: AskedTwice, min_effect: float, *, stale: str = "") -> Repetition:
    """Return the displayed values of one benchmark of a calibration."""
    noise, rate = noise_of(asked), share_interval(asked.flips, asked.samples)
    checkpoint = calibration.plan.checkpoint
    return Repetition(
        benchmark=asked.benchmark,
        samples=asked.samples,
        flips=asked.flips,
        flip_rate_low=rate[0],
        flip_rate_high=rate[1],
        other_texts=asked.other_texts,
        noise=noise.sd,
        noise_low=noise.low,
        noise_high=noise.high,
        shift=shift_of(asked),
        fitness=fitness(asked, min_effect),
        min_effect=min_effect,
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        engine=_engine_text(calibration.engine),
        measured_at=calibration.finished_at,
        stale=stale,
    )


def decoding_variance(known: Repetition | None) -> float:
    """Return the variance of one sample's score due to decoding; 0 if there is no valid calibration."""
    if known is None or known.stale:
        return 0.0
    return known.noise**2 * known.samples


def _tried(name: str, outcomes: Sequence[Outcome], min_coverage: float) -> AskedTwice | BenchmarkFailure:
    results: list[EvalResult] = []
    for outcome in outcomes:
        if outcome.benchmark != name:
            continue
        if isinstance(outcome, BenchmarkFailure):
            return outcome
        results.append(outcome)
    fingerprint = results[0].fingerprint if results else ""
    if len(results) != 2:
        return _failure(name, fingerprint, f"only {len(results)} of 2 passes produced a result for {name}")
    asked = asked_twice(results[0], results[1])
    if asked is not None and asked.samples >= min_coverage * asked.planned:
        return asked
    return _failure(name, fingerprint, _too_few(name, results, asked))


def _too_few(name: str, results: Sequence[EvalResult], asked: AskedTwice | None) -> str:
    samples = list(chain.from_iterable(result.samples for result in results))
    detail = first_detail(samples)
    both = 0 if asked is None else asked.samples
    planned = len({s.sample_id for s in samples})
    text = f"only {both} of {planned} samples of {name} scored in both passes"
    if detail:
        return f"{text}; first failure: {detail}"
    return text


def _failure(name: str, fingerprint: str, message: str) -> BenchmarkFailure:
    return BenchmarkFailure(
        benchmark=name,
        fingerprint=fingerprint,
        code=Incomparable.code,
        message=message,
        hint="rerun `tracker calibrate`",
        retryable=False,
    )


def _texts(result: EvalResult) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for sample in sorted(result.samples, key=lambda s: s.repeat):
        found.setdefault(sample.sample_id, []).append(sample.answer)
    return {key: tuple(texts) for key, texts in found.items()}


def _changed(calibration: Calibration, asked: AskedTwice, record: EvalRecord) -> str:
    """Return why a calibration is stale; empty: it is valid."""
    fingerprints = {outcome.benchmark: outcome.fingerprint for outcome in record.outcomes}
    served = serve_settings(record.plan.serve), serve_settings(calibration.plan.serve)
    if fingerprints.get(asked.benchmark) != asked.fingerprint or served[0] != served[1]:
        return "; ".join(all_differences(record.plan, calibration.plan, asked.benchmark))
    now, then = record.engine, calibration.engine
    if now is None:
        return ""
    if then is None:
        return "the engine of the calibration is unknown"
    return _changed_engine(now, then)


def _changed_engine(now: EngineInfo, then: EngineInfo) -> str:
    if (now.name, now.version) != (then.name, then.version):
        return f"engine is {_engine_text(now)}, was {_engine_text(then)}"
    if now.is_batch_invariant != then.is_batch_invariant:
        return f"outputs are {'now' if now.is_batch_invariant else 'no longer'} batch-invariant"
    if now.device and then.device:
        if now.device == then.device:
            return ""
        return f"device is {now.device}, was {then.device}"
    if now.machine == then.machine:
        return ""
    return "engine runs on another machine"


def _engine_text(engine: EngineInfo | None) -> str:
    if engine is None:
        return ""
    return f"{engine.name} {engine.version}".strip()
