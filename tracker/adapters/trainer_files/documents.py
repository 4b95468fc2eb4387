"""Reads the small files in which trainers leave their settings: JSON, YAML, and TrainingArguments of torch.save.

The files come from outside: each is read up to a limit, nothing in it is run, and one that cannot be read is ignored.
"""

import io
import logging
import pickletools
import zipfile
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import yaml

from eval_jobs import limits
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from tracker.domain.checkpoints.listing import ADAPTER_CONFIG
from tracker.domain.records.display import ONCE
from tracker.domain.tracking.trainer_facts import Document

log = logging.getLogger(__name__)

FILES = (
    "training_args.bin",
    "args.json",
    "training_args.json",
    "training_args.yaml",
    "config.yaml",
    "config.yml",
    "axolotl_config.yaml",
    "torchtune_config.yaml",
    ADAPTER_CONFIG,
)
"""Of Hugging Face, ms-swift, LLaMA-Factory, axolotl, torchtune and PEFT."""
_SETTINGS = (".yaml", ".yml", ".json")
_MARK = object()


def read_documents(folders: Sequence[Path]) -> dict[str, Document]:
    """Return the content of the `FILES` that can be read, each from the first folder that has it."""
    documents = {}
    for name in FILES:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is not None:
            documents[name] = _read(path)
    return documents


def command_documents(command: Sequence[str], folder: Path) -> dict[str, Document]:
    """Return the options of a trainer's command line, and the content of the settings files that it names.

    `--name value`, `--name=value` and `name=value` are options; `folder` is where the trainer runs.
    """
    options: dict[str, object] = {}
    documents: dict[str, Document] = {"command line": options}
    for argument, following in zip_longest(command, command[1:], fillvalue=""):
        name, has_value, value = argument.lstrip("-").partition("=")
        if has_value:
            options[name.replace("-", "_")] = value
        elif argument.startswith("--"):
            options[name.replace("-", "_")] = "" if following.startswith("--") else following
        elif argument.endswith(_SETTINGS) and (folder / argument).is_file():
            documents[str(folder / argument)] = _read(folder / argument)
    return documents


def _read(path: Path) -> Document:
    try:
        document = _parse(path.suffix, read_bytes(path, limits.SETTINGS))
        if not isinstance(document, dict):
            raise TypeError("it contains no names")
    except Exception as error:  # noqa: BLE001 - damaged YAML and archives raise nearly anything
        log.warning("ignored the trainer's %s: %s", path, str(error).partition("\n")[0], extra=ONCE)
        return {}
    return document


def _parse(suffix: str, content: bytes) -> object:
    if suffix == ".json":
        return parse_json(content)
    if suffix == ".bin":
        return _arguments(content)
    # This loader makes texts only: no objects, no dates, no merged mappings, which can grow without limit.
    return yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - safer than the safe loader


def _arguments(content: bytes) -> object:
    """Return what torch.save wrote: a pickle in an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as file:
            return _plain_attributes(file.read(limits.SETTINGS.most))


def _plain_attributes(pickled: bytes) -> dict[str, object]:
    """Return the attributes of the pickled object: texts, numbers and enums as their values, all others as None.

    Nothing is imported or called. A damaged pickle raises ValueError, IndexError, TypeError or StopIteration.
    """
    stack: list[object] = []
    memo: dict[object, object] = {}
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "MEMOIZE" or opcode.name.endswith("PUT"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif opcode.name.endswith("GET"):
            stack.append(memo.get(argument))
        elif opcode.name == "STOP" and isinstance(stack[-1], dict):
            return stack[-1]
        else:
            value = _value(opcode.name, argument, _taken(stack, opcode.stack_before))
            stack += [value for _ in opcode.stack_after]
    return {}


def _taken(stack: list[object], kinds: Sequence[object]) -> list[object]:
    count = len(kinds)
    if pickletools.stackslice in kinds:  # all values above a mark
        count += next(above for above, value in enumerate(reversed(stack)) if value is _MARK) - 1
    taken = [stack.pop() for _ in range(count)]
    return [value for value in reversed(taken) if value is not _MARK]


def _value(name: str, argument: object, taken: list[object]) -> object:
    if name in _MAKE:
        return _MAKE[name](taken)
    if name.endswith(("INT", "INT1", "INT2", "LONG1", "FLOAT", "UNICODE")):
        return argument
    return None


def _with_items(taken: list[object]) -> object:
    target, *items = taken
    if isinstance(target, dict):
        target.update((key, value) for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str))
    return target


_MAKE: Mapping[str, Callable[[list[object]], object]] = {
    "MARK": lambda _: _MARK,
    "EMPTY_DICT": lambda _: {},
    "SETITEM": _with_items,
    "SETITEMS": _with_items,
    "TUPLE1": tuple,
    "REDUCE": lambda taken: taken[1][0] if isinstance(taken[1], tuple) else None,  # an enum
    "BUILD": lambda taken: taken[1],
}
