"""What a hostile neighbour puts into a trainer's folder: names, times, links, sizes, headers, JSON, pickles, logs."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

Damage = Callable[[Path, random.Random], None]

TIMES_S = (-1, 0, 1, 10**9, 4 * 10**9, 10**10, 10**11, 10**12, -(10**9), 2**31 - 1, 2**31, 2**33, 2**34 - 1)
SIZES = (0, 1, 7, 8, 9, 4095, 1 << 20, 40 << 20, 300 << 20, 5 << 30, 20 << 30, 1 << 40)
"""In bytes; files of these sizes are sparse."""
TARGETS = ("/dev/zero", "/dev/null", "/proc/self/environ", "config.json", "..", ".", "nowhere", "../../tracker.toml")
NUMBERS: tuple[object, ...] = (
    0,
    -1,
    1,
    3.5,
    1e308,
    1e-300,
    10**12,
    10**13,
    10**30,
    -(10**30),
    True,
    None,
    "7",
    "x",
    [],
    {},
    [[]],
    10**400,
)
TEXTS = ("", "x", "../../etc/passwd", "/dev/zero", "a" * 300, "a" * 1_000_000, "\x00", "\ud83d", "\x1b[31m", "ü" * 500)
STATE_KEYS = ("global_step", "save_steps", "max_steps", "log_history", "best_global_step", "epoch")
CONFIG_KEYS = ("architectures", "model_type", "vocab_size", "base_model_name_or_path", "r", "auto_map", "torch_dtype")
JSON_FILES = (
    "config.json",
    "trainer_state.json",
    "tokenizer.json",
    "adapter_config.json",
    "model.safetensors.index.json",
)
NAMES = (*JSON_FILES, "model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", ".metadata", "latest",
         "optimizer.pt", "x.distcp", ".pin.json", ".pin.json.tmp", "tokenizer.model", "chat_template.jinja",
         "training_args.bin",
         "rng_state_99999999.pth", "logging.jsonl", "pytorch_model_fsdp_0", "global_step7")  # fmt: skip
FOLDER_NAMES = (
    *(
        "checkpoint-1e3",
        "checkpoint--5",
        "checkpoint-",
        "checkpoint-0",
        "checkpoint-10000000",
        "checkpoint-10000000000",
    ),
    *(f"checkpoint-{10**12}", f"checkpoint-{10**12 + 1}", f"checkpoint-{10**17}", f"checkpoint-{'9' * 200}"),
    *("checkpoint-٣", "checkpoint-\uff17", "checkpoint-15.tmp", "tmp-checkpoint-15", "Checkpoint-15", "checkpoint_15"),
    *(".checkpoint-15", "checkpoint-15\n", "checkpoint-15 ", "checkpoint-\x1b[2J15", "checkpoint-\u202e51", "-rf"),
    *(
        "--help",
        "$(touch x)",
        "step-15",
        "global_step15",
        "epoch_15",
        "runs",
        "best",
        "final",
        "a" * 255,
        "iter_0000015",
    ),
    *("checkpoint-15.ckpt", "step=15.ckpt", ".held-1", "step-00000010-abc", "logs", "checkpoint-007", "%s%n", "..."),
)


def sized(folder: Path, chance: random.Random) -> None:
    """Give a file an impossible size."""
    path = folder / chance.choice(NAMES[:12])
    _remove_special(path)
    with path.open("ab") as file:
        file.truncate(chance.choice(SIZES))


def timed(folder: Path, chance: random.Random) -> None:
    """Set impossible times, of a file or the folder itself."""
    paths = [folder, *folder.iterdir()]
    for path in chance.sample(paths, chance.randint(1, len(paths))):
        with suppress(OSError, OverflowError):
            os.utime(path, (chance.choice(TIMES_S), chance.choice(TIMES_S)), follow_symlinks=False)


def linked(folder: Path, chance: random.Random) -> None:
    """Put a link in place of a file."""
    path = folder / chance.choice(NAMES)
    _remove(path)
    path.symlink_to(chance.choice(TARGETS))


def special(folder: Path, chance: random.Random) -> None:
    """Put a pipe, a socket or a folder in place of a file."""
    path = folder / chance.choice(NAMES)
    _remove(path)
    kind = chance.randrange(3)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
        (path / chance.choice(NAMES)).write_bytes(b"x")
    else:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as server:  # the path may be too long
            server.bind(str(path))


def with_header(folder: Path, chance: random.Random) -> None:
    """Give the weights a header that no library writes."""
    entry = {"dtype": chance.choice(("F32", "X", "", 5)), "shape": [chance.choice(NUMBERS)], "data_offsets": [0, 4]}
    texts = (
        json.dumps({"a" * chance.choice((1, 2000, 3_000_000)): entry}, default=str),
        "{" + '"a":{},' * chance.choice((10, 250_000)) + '"b":{}}',
        '{"a": {"dtype": "F32", "shape": [' + "9" * 4200 + '], "data_offsets": [0, 1]}}',
        '{"a":' * 100_000,
        "null",
        "",
        json.dumps({"__metadata__": {"x": "y" * 1_000_000}}),
    )
    text = chance.choice(texts).encode(errors="replace")
    length = chance.choice((len(text), len(text) + 1, 0, 2**63, 2**64 - 1, 1 << 25, 99_000_000))
    _write(folder / "model.safetensors", struct.pack("<Q", length) + text)


def with_json(folder: Path, chance: random.Random) -> None:
    """Write JSON of impossible values, depth, size or encoding."""
    values = {key: chance.choice((*NUMBERS, *TEXTS)) for key in chance.sample((*STATE_KEYS, *CONFIG_KEYS), 5)}
    rows = [{"step": chance.choice(NUMBERS), "loss": chance.choice((*NUMBERS, *TEXTS))} for _ in range(20)]
    texts = (
        json.dumps(values),
        json.dumps({"global_step": 15, "save_steps": chance.choice(NUMBERS), "log_history": rows}),
        json.dumps({"weight_map": {"a": chance.choice(TEXTS), chance.choice(TEXTS): "model.safetensors"}}),
        json.dumps({"base_model_name_or_path": chance.choice(TEXTS), "peft_type": "LORA"}),
        "[" * chance.choice((10, 100_000)),
        "[" + "[]," * chance.choice((10, 2_500_000)) + "0]",
        '{"a": ' + "1" * 5000 + "}",
        '{"global_step": NaN, "save_steps": Infinity}',
        "\ufeff{}",
        "",
    )
    _write(folder / chance.choice(JSON_FILES), chance.choice(texts).encode(errors="surrogatepass"))


def with_pickle(folder: Path, chance: random.Random) -> None:
    """Write a pickle or an archive that fills the memory, or is damaged."""
    _remove(folder / "model.safetensors")
    pickles = (
        b"\x80\x02" + b"]" * 3_000_000 + b".",
        b"\x80\x04cposix\nsystem\n.",
        b"N" * 5_000_000,
        chance.randbytes(99),
    )
    if chance.random() < 0.5:
        _write(folder / ".metadata", chance.choice(pickles))
        _write(folder / "__0_0.distcp", b"x")
        return
    _remove_special(folder / "pytorch_model.bin")
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", chance.choice(pickles))
        archive.writestr("archive/zeros", b"\0" * 50_000_000)


def shortened(folder: Path, chance: random.Random) -> None:
    """Cut a file, as a killed trainer does."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    if files:
        path = chance.choice(files)
        os.truncate(path, chance.randint(0, path.stat().st_size))


def random_bytes(folder: Path, chance: random.Random) -> None:
    """Write bytes without meaning."""
    path = folder / chance.choice(NAMES)
    _remove(path)
    path.write_bytes(chance.randbytes(chance.choice((1, 100, 100_000))))


def deleted(folder: Path, chance: random.Random) -> None:
    """Delete a file."""
    _remove(chance.choice(list(folder.iterdir())))


INSIDE: Sequence[Damage] = (
    sized, timed, linked, special, with_header, with_json, with_pickle, shortened, random_bytes, deleted,
)  # fmt: skip
"""Damages of a checkpoint's folder, after which it may be none."""


def harmless(folder: Path, chance: random.Random) -> None:
    """Change what does not belong to the model: a checkpoint stays sound."""
    kind = chance.randrange(5)
    if kind == 0:
        timed(folder, chance)
    elif kind == 1:
        (folder / ".pin.json").write_text(chance.choice(("", "{}", '{"schema_version": 99}')))
    elif kind == 2:
        os.truncate(folder / "optimizer.pt", chance.choice(SIZES))
    elif kind == 3:
        (folder / "loop").symlink_to(".")
    else:
        os.mkfifo(folder / "pipe")


def beside(out: Path, chance: random.Random) -> None:
    """Put logs and settings that cannot be read beside the checkpoints."""
    row = json.dumps({"step": chance.choice(NUMBERS), "loss": chance.choice((*NUMBERS, *TEXTS))})
    files: dict[str, str] = {
        "logging.jsonl": f"{row}\n" * chance.choice((1, 20)) + "\x00" + "9" * chance.choice((1, 5000)),
        "trainer_log.jsonl": '{"current_steps": 1, "loss": 2' * chance.choice((1, 100_000)),
        "metrics.csv": "step,loss\n" + "9" * 5000 + ",1\n" + "1," + "x" * chance.choice((1, 300_000)),
        "args.json": '{"a":' * 20_000,
        "config.yaml": "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a]\n" for n in range(50)),
    }
    for name in chance.sample(sorted(files), 2):
        (out / name).write_text(files[name], errors="replace")
    if chance.random() < 0.2:
        os.mkfifo(out / "events.out.tfevents.1")


def _write(path: Path, content: bytes) -> None:
    _remove_special(path)
    path.write_bytes(content)


def _remove_special(path: Path) -> None:
    """Remove what is no file: nothing is ever written through a link or into a pipe."""
    if path.is_symlink() or not path.is_file():
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
