"""Settings of a task in lm-evaluation-harness: everything in a result file that can change its scores. Pure."""

from collections.abc import Iterator, Mapping

from eval_jobs.harness.fields import Fields, whole
from eval_jobs.identity import content_hash
from eval_jobs.neutral_settings import is_neutral_argument

HARNESS = "lm-evaluation-harness"

_NOT_OF_SCORES = frozenset(
    (
        *("pretrained", "revision", "peft", "delta", "tokenizer", "model", "path", "base_url", "subfolder"),
        *("parallelize", "device_map", "batch_size", "max_batch_size", "num_concurrent", "max_retries", "timeout"),
        *("trust_remote_code", "cache_dir", "tokenized_requests", "offload_folder"),
    )
)
"""Model arguments that identify the checkpoint, or only affect where it runs, in addition to neutral ones."""
_NAMING = ("peft", "delta", "pretrained", "model", "path", "revision", "subfolder")
"""Those that select the weights; an adapter identifies them better than its base."""
_TASK_FIELDS = (
    *("dataset_path", "dataset_name", "test_split", "validation_split", "doc_to_text", "doc_to_target"),
    *("doc_to_choice", "description", "target_delimiter", "fewshot_delimiter", "fewshot_split", "output_type"),
    *("generation_kwargs", "filter_list", "repeats"),
)
_ADDRESS = " at 0x"
"""Memory address in the text of a function; it differs in every process."""


def settings_of(document: Fields, task: str, metric: str, through: str) -> tuple[tuple[str, str], ...]:
    """Return name and value of every setting in the file, sorted; two results are comparable if all are equal."""
    config = document.mapping("config")
    found = {
        "metric": metric,
        "filter": through,
        "task_version": _text(document.mapping("versions").values.get(task)),
        "samples": _text(document.mapping("n-samples").mapping(task).values.get("effective")),
        "sample_limit": _text(config.values.get("limit")),
        "harness_model": _text(config.values.get("model")),
        "gen_kwargs": _text(config.values.get("gen_kwargs")),
        "fewshot_seed": _text(config.values.get("fewshot_seed")) if reported_few_shot(document, task) else "",
        "chat_template": _digest(document.values.get("chat_template_sha") or document.values.get("chat_template")),
        "system_instruction": _digest(
            document.values.get("system_instruction_sha") or document.values.get("system_instruction")
        ),
        "fewshot_as_multiturn": _text(document.values.get("fewshot_as_multiturn")),
        "task_config": _task_digest(document.mapping("configs").mapping(task)),
        **{f"model.{name}": value for name, value in _arguments(config) if _can_change_scores(name)},
    }
    return tuple(sorted((name, value) for name, value in found.items() if value))


def reported_few_shot(document: Fields, task: str) -> int | None:
    """Return the number of examples in the prompt; None if the file does not contain it."""
    named = document.mapping("n-shot").values.get(task)
    config = document.mapping("configs").mapping(task).values.get("num_fewshot")
    known = map(whole, (named, config, document.mapping("config").values.get("num_fewshot")))
    return next((shots for shots in known if shots is not None), None)


def reported_model_names(document: Fields) -> tuple[str, ...]:
    """Return the names of the checkpoint in the file: the arguments that select its weights, and the model's name."""
    arguments = dict(_arguments(document.mapping("config")))
    named = (arguments.get(name, "") for name in _NAMING)
    return tuple(dict.fromkeys(text for text in (*named, document.text("model_name")) if text))


def _can_change_scores(argument: str) -> bool:
    return argument not in _NOT_OF_SCORES and not is_neutral_argument(argument)


def _arguments(config: Fields) -> Iterator[tuple[str, str]]:
    """Yield name and value of the model's arguments, which are given as a string or an object."""
    arguments = config.values.get("model_args")
    if isinstance(arguments, dict):
        yield from ((str(name), _text(value)) for name, value in arguments.items())
    elif isinstance(arguments, str):
        for part in arguments.split(","):
            name, _, value = part.partition("=")
            yield name.strip(), value.strip()


def _task_digest(config: Fields) -> str:
    """Return a hash of how the task's questions are built, as far as the file contains it."""
    known = {name: config.values[name] for name in _TASK_FIELDS if config.values.get(name) not in (None, "", {})}
    stable = {name: value for name, value in known.items() if _ADDRESS not in str(value)}
    return _digest(stable)


def _digest(value: object) -> str:
    if value:
        return content_hash(value)
    return ""


def _text(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        return content_hash(value)
    return str(value)
