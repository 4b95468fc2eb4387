"""What a suspicious result was held against."""

from tracker.domain.records.types import Baseline, Comparison


def suspicious(*baseline_steps: int, pooled_steps: tuple[int, ...]) -> Comparison:
    """Return a comparison of the newest checkpoints, `pooled_steps`, that says `worse` with p = .001."""
    return Comparison(
        baseline=Baseline.RECENT,
        baseline_steps=baseline_steps,
        pooled_steps=pooled_steps,
        n_common=400,
        common_fraction=1.0,
        delta=-0.1,
        stderr=0.05,
        ci_low=-0.2,
        ci_high=0.0,
        p_worse=0.001,
        p_better=0.999,
        p_worse_items=0.001,
        jitter=0.0,
        n_lost=1,
        n_gained=0,
        method="pooled-t",
    )
