"""The tables of results. Pure. `tracker.schema`, docs/reference/tables.md and the exports are made from these."""

from collections.abc import Mapping

from tracker.domain.records.types import VerdictWord
from tracker.domain.tables.columns import (
    RUN,
    STEP,
    TableDefinition,
    category,
    count,
    flag,
    moment,
    number,
    optional_count,
    text,
)
from tracker.domain.tables.followed import ALERTS, CURVES, INCIDENTS, LOG, POINTS, PROGRESS

_WORDS = tuple(str(word) for word in VerdictWord)
_PLAN = text("plan_id", "Identifies the evaluation in every table.")
_SUITE = category("suite", "Suite that was evaluated.")
_BENCHMARK = category("benchmark", "Benchmark.")
_SUBSET = category("subset", "Subset; empty: the whole benchmark.")

RUNS = TableDefinition(
    name="runs",
    row="run",
    columns=(
        RUN,
        count("checkpoints", "Steps with an evaluation."),
        count("gaps", "Steps without one."),
        count("losses_open", "Losses that have not ended."),
        count("alerts_firing", "Alerts that have not been resolved."),
        count("waiting", "Evaluations that wait for a worker."),
        count("running", "Evaluations at a worker."),
        optional_count("first_step", "First evaluated step."),
        optional_count("last_step", "Last evaluated step."),
        optional_count("best_step", "Best checkpoint over the suite; missing: none, samples unknown, or `best=False`."),
        text("headline", "The finding in one sentence; empty: `headlines=False`."),
        text("output_dir", "Folder that is watched; empty: unknown."),
        moment("last_at", "When the last evaluation ended."),
    ),
)
CHECKPOINTS = TableDefinition(
    name="checkpoints",
    row="content of a step, or a gap",
    columns=(
        RUN,
        STEP,
        text("digest", "SHA-256 of the weights; empty: a gap."),
        text("source", "The trainer's folder."),
        text("pin", "Folder of the tracker's own copy, which may be deleted; empty: a gap."),
        text("gap", "Code of the reason for no evaluation; empty: evaluated."),
        text("reason", "Why it was not evaluated, or why there is no verdict."),
        category("format", "Format of the weights."),
        category("word", "The most urgent verdict; NaN: none yet.", ordered=_WORDS),
        flag("left_behind", "Whether training went back to a step before it."),
        moment("ready_at", "When the trainer finished it."),
        moment("judged_at", "Time of the verdicts."),
    ),
)
SCORES = TableDefinition(
    name="scores",
    row="benchmark of a checkpoint, or subset",
    columns=(
        RUN,
        STEP,
        _SUITE,
        _BENCHMARK,
        _SUBSET,
        category("metric", "Metric of the score."),
        category("failure", "Code of the error; empty: there is a result."),
        number("score", "Mean over the samples with a score, as the benchmark reports it."),
        number("stderr", "Standard error of the score."),
        number("coverage", "Samples with a score / planned samples."),
        number("duration_s", "Share of the time that all benchmarks took together.", "s"),
        optional_count("planned", "Planned answers."),
        optional_count("scored", "Complete answers with a score."),
        optional_count("truncated", "Answers that were cut off at the token limit, and scored."),
        optional_count("unscored", "Answers without a score."),
        optional_count("errors", "Samples without an answer."),
        optional_count("input_tokens", "Tokens of the prompts."),
        optional_count("output_tokens", "Tokens of the answers."),
        flag("higher_is_better", "Whether a higher score is better."),
        text("fingerprint", "Hash of the benchmark's settings: only equal ones can be compared."),
        moment("finished_at", "When the evaluation ended."),
        _PLAN,
    ),
)
VERDICTS = TableDefinition(
    name="verdicts",
    row="verdict or finding",
    columns=(
        RUN,
        STEP,
        _SUITE,
        category("benchmark", "Benchmark; empty: all of the suite together."),
        _SUBSET,
        category("measure", "What was judged: score, output length or completeness."),
        category("word", "Verdict, most urgent first.", ordered=_WORDS),
        category("baseline", "Baseline of the test that decided; empty: none."),
        number("score", "Score; of a screened benchmark the estimate for all samples."),
        number("coverage", "Samples with a score / planned samples."),
        number("delta", "Change from the baseline, of an open loss as in `losses`; up is better."),
        number("ci_low", "Lower end of the 95 % interval of the change."),
        number("ci_high", "Upper end of the 95 % interval of the change."),
        number("p_worse", "One-sided p of a loss, in the test that decided."),
        number("p_better", "One-sided p of a gain, in the same test."),
        number("mde", "Smallest loss that this checkpoint alone would have shown in 80 % of cases."),
        number("alpha_test", "Significance level of the test."),
        optional_count("baseline_first", "First step of the baseline."),
        optional_count("baseline_last", "Last step of the baseline."),
        optional_count("n_common", "Samples with a score on both sides."),
        optional_count("n_lost", "Samples that were answered correctly before and no longer are."),
        optional_count("n_gained", "The reverse."),
        optional_count("lost_since", "First step of the loss that is open or ends here."),
        text("reason", "The verdict in one sentence."),
        moment("judged_at", "Time of the verdict."),
        _PLAN,
    ),
)
SAMPLES = TableDefinition(
    name="samples",
    row="planned answer",
    columns=(
        RUN,
        STEP,
        _SUITE,
        _BENCHMARK,
        category("subset", "Subset of the sample; empty: none."),
        category("status", "scored, truncated, unscored, or error."),
        text("sample_id", "Identifies the question in all checkpoints."),
        text("cluster_id", "Cluster of dependent samples; empty: its own."),
        count("repeat", "Number of the answer, from 0."),
        number("score", "Score of the answer."),
        optional_count("output_tokens", "Tokens of the answer."),
        _PLAN,
        text("prompt", "Prompt; only with texts=True, as all that follow."),
        text("target", "Expected answer."),
        text("answer", "Answer of the model; NaN: deleted."),
        text("detail", "Why there is no score; NaN: deleted."),
    ),
)

_LOAD = category("load", "Load of the latency test.")
LATENCY = TableDefinition(
    name="latency",
    row="load of a checkpoint",
    columns=(
        RUN,
        STEP,
        _LOAD,
        category("word", "The most urgent verdict on its latency; NaN: none.", ordered=_WORDS),
        category("failure", "Code of the error; empty: there is a result."),
        *(
            number(f"{metric}_{statistic}_ms", f"{meaning}, {statistic}.", "ms")
            for metric, meaning in (
                ("ttft", "Time to the first token"),
                ("tpot", "Time per output token after the first"),
                ("itl", "Time between two tokens"),
                ("e2e", "Time of the whole request"),
            )
            for statistic in ("p50", "p90", "p95", "p99", "mean")
        ),
        number("requests_per_s", "Completed requests.", "1/s"),
        number("output_tokens_per_s", "Output tokens.", "1/s"),
        number("duration_s", "Length of the test.", "s"),
        count("completed", "Completed requests."),
        count("failed", "Failed requests."),
        _PLAN,
    ),
)
REQUESTS = TableDefinition(
    name="requests",
    row="request of a latency test",
    columns=(
        RUN,
        STEP,
        _LOAD,
        category("side", "candidate, or reference that was timed in between."),
        count("position", "Position in the test, from 0."),
        number("ttft_ms", "Time to the first token.", "ms"),
        number("tpot_ms", "Time per output token after the first.", "ms"),
        number("e2e_ms", "Time of the whole request.", "ms"),
    ),
)
LOSSES = TableDefinition(
    name="losses",
    row="lost skill, from its alarm to its end",
    columns=(
        RUN,
        _SUITE,
        category("benchmark", "Benchmark; empty: all of the suite together."),
        _SUBSET,
        category("measure", "What was lost: score, output length or completeness."),
        optional_count("series", "Number of its settings in the run, from 1; empty: all benchmarks together."),
        category("closed_by", "How it ended; empty: it is open."),
        count("onset_step", "First step of the loss."),
        count("opened_step", "Step that raised the alarm."),
        optional_count("closed_step", "Step at which it ended."),
        optional_count("last_step", "Last step with the loss, if it recovered."),
        flag("forgotten", "Whether a learned skill stayed below its peak at three checkpoints in a row."),
        number("before", "Score of the baseline, as the benchmark reports it."),
        number("now", "Score of the newest checkpoints with the loss."),
        number("delta", "Change from the baseline on common samples; up is better."),
        number("ci_low", "Lower end of the 95 % interval of the change."),
        number("ci_high", "Upper end of the 95 % interval of the change."),
        optional_count("baseline_first", "First step of the baseline."),
        optional_count("baseline_last", "Last step of the baseline."),
        optional_count("newest_step", "Newest step with the loss."),
        optional_count("n_common", "Samples with a score on both sides."),
        optional_count("n_lost", "Samples that were answered correctly before and no longer are."),
        optional_count("n_gained", "The reverse."),
        text("reason", "Reason of its acceptance; empty: not accepted."),
    ),
)
FORGETTING = TableDefinition(
    name="forgetting",
    row="benchmark",
    columns=(
        RUN,
        _BENCHMARK,
        _SUBSET,
        number("peak", "Mean score of the best checkpoints."),
        number("now", "Mean score of the newest checkpoints."),
        number("forgetting", "Loss since the peak, on common samples; up is worse."),
        number("ci_low", "Lower end of the 95 % interval of the loss."),
        number("ci_high", "Upper end of the 95 % interval of the loss."),
        number("p_value", "One-sided p of no loss, between these two sides alone."),
        number("retention", "Share kept of what was learned; NaN: nothing was."),
        number("raw", "Best score before the newest checkpoint - newest score (Chaudhry et al. 2018)."),
        number("raw_by_chance", "The same, as expected of a healthy run on a plateau."),
        number("lost_by_chance", "Lost samples that chance alone would show."),
        optional_count("peak_first", "First step of the best checkpoints."),
        optional_count("peak_last", "Last step of the best checkpoints."),
        optional_count("lost", "Samples that were mostly correct before and mostly incorrect now."),
        optional_count("gained", "The reverse."),
        optional_count("net_lost", "Lost - gained."),
        optional_count("samples", "Samples of the benchmark or subset."),
    ),
)
EVENTS = TableDefinition(
    name="events",
    row="change of a sample",
    columns=(
        RUN,
        STEP,
        _BENCHMARK,
        category("subset", "Subset of the sample; empty: none."),
        category("event", "learned, forgotten, or relearned."),
        text("sample_id", "Identifies the question."),
    ),
)
SWEEPS = TableDefinition(
    name="sweeps",
    row="benchmark of a target in one variant; each axis adds a column `set_AXIS`",
    columns=(
        RUN,
        category("sweep", "Name of the sweep."),
        moment("due_at", "Time for which the sweep run was due."),
        category("target", "Checkpoint or endpoint."),
        _BENCHMARK,
        number("mean", "Score, as the benchmark reports it."),
        number("low", "Lower end of its 95 % interval."),
        number("high", "Upper end of its 95 % interval."),
        number("delta", "Paired difference from the first row; up is better."),
        number("delta_low", "Lower end of the 95 % interval of the difference."),
        number("delta_high", "Upper end of the 95 % interval of the difference."),
        number("coverage", "Samples with a score / planned samples."),
        text("failure", "Why there is no score; empty: there is one."),
        _PLAN,
    ),
)
COSTS = TableDefinition(
    name="costs",
    row="evaluation",
    columns=(
        RUN,
        STEP,
        _SUITE,
        category("asked", "Part of the benchmarks: whole, screen, or rest."),
        number("loading_s", "Time to load the weights.", "s"),
        number("evaluating_s", "Time to ask and score.", "s"),
        number("probing_s", "Time of the latency test.", "s"),
        number("wall_s", "Time from start to end.", "s"),
        number("gpu_s", "GPUs times time; NaN: unknown.", "s"),
        number("cpu_s", "CPU time of the engine; NaN: unknown.", "s"),
        optional_count("input_tokens", "Tokens of the prompts."),
        optional_count("output_tokens", "Tokens of the answers."),
        moment("started_at", "When the evaluation began."),
        moment("finished_at", "When it ended."),
        _PLAN,
    ),
)
TABLES: Mapping[str, TableDefinition] = {
    table.name: table
    for table in (
        RUNS,
        CHECKPOINTS,
        SCORES,
        VERDICTS,
        SAMPLES,
        LATENCY,
        REQUESTS,
        LOSSES,
        FORGETTING,
        EVENTS,
        SWEEPS,
        COSTS,
        ALERTS,
        CURVES,
        POINTS,
        INCIDENTS,
        PROGRESS,
        LOG,
    )
}
"""All tables with fixed columns, by name."""
