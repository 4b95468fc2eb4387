"""Known metrics of lm-evaluation-harness, and tasks of it and of EvalScope, for what nothing else declares. Pure."""

SHARES_UP = frozenset(
    (
        *("acc", "acc_norm", "acc_norm_nospace", "acc_bytes", "acc_mutual_info", "acc_all", "exact_match", "em"),
        *("exact_match_strict", "exact", "f1", "f1_macro", "f1_micro", "mc1", "mc2", "contains", "pass@1", "pass_at_1"),
        *("prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc"),
    )
)
"""Scores from 0 to 1; higher is better."""
SHARES_DOWN = frozenset(("pct_stereotype", "brier_score", "wer", "cer"))
"""Scores of which lower is better; used only if they are from 0 to 1."""
NO_SHARES = frozenset(
    (
        *("ppl", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "likelihood_difference"),
        *("likelihood_diff", "bleu", "chrf", "ter", "mcc", "spearman", "pearson", "bypass"),
    )
)
"""Metrics without a scale from 0 to 1, even if a value happens to be in that range."""

CHANCE = {
    **dict.fromkeys(("lambada", "lambada_openai", "lambada_standard", "triviaqa", "webqs", "gsm8k"), 0.0),
    **dict.fromkeys(("headqa_en", "hellaswag", "arc_easy", "arc_challenge", "logiqa", "openbookqa", "prost"), 0.25),
    **dict.fromkeys(("race", "sciq", "mmlu", "mmmlu", "cmmlu", "ceval", "arc", "logi_qa", "med_mcqa"), 0.25),
    **dict.fromkeys(("gpqa_diamond", "hellaswag_hi", "longbench_v2"), 0.25),
    **dict.fromkeys(("copa", "piqa", "wic", "winogrande"), 0.5),
    **dict.fromkeys(("anli", "siqa"), 1 / 3),
    **dict.fromkeys(("mathqa", "math_qa", "commonsense_qa"), 0.2),
    "qasc": 0.125,
    # The same two or three answers for every question: the share of the most frequent one.
    "boolq": 2033 / 3270,
    "mrpc": 279 / 408,
    "pubmedqa": 552 / 1000,
    "qnli": 2761 / 5463,
    "qqp": 25545 / 40430,
    "rte": 146 / 277,
    "sst": 444 / 872,
    "wnli": 40 / 71,
    "wsc": 66 / 104,
}
"""Score of the best answer that does not read the question."""
MMLU_CHANCE = 0.25


def chance_of_task(task: str) -> float | None:
    """Return the score of guessing, or None if it is not known."""
    is_mmlu = task.startswith(("hendrycksTest", "mmlu_")) and not task.startswith("mmlu_pro")
    if is_mmlu:
        return MMLU_CHANCE
    return CHANCE.get(task)


def chance_of_metric(task: str, metric: str) -> float | None:
    """Return the score of guessing of a task if the metric is an accuracy; None if it is not known."""
    if metric.startswith(("acc", "mean_acc")):
        return chance_of_task(task)
    return None


def known_direction(metric: str) -> bool | None:
    """Return whether higher is better for a metric, or None if it is not known."""
    if metric in SHARES_UP:
        return True
    if metric in SHARES_DOWN:
        return False
    return None
