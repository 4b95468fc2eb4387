import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from tests.trainer import weights
from tracker.adapters.checkpoints.files import safetensors_file
from tracker.adapters.checkpoints.files.safetensors_file import read_header, read_weights
from tracker.domain.checkpoints.listing import Broken, Header

WEIGHTS = weights(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


def write(folder: Path, content: bytes, name: str = "model.safetensors") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def raw(tensors: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    """Return a safetensors file with any types, which numpy need not know."""
    header: dict[str, object] = {}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def with_header(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def test_the_header_says_the_size_and_the_tensors(tmp_path: Path) -> None:
    header = read_header(write(tmp_path, WEIGHTS))
    assert header == Header(
        end=len(WEIGHTS),
        tensors=frozenset({"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"}),
    )


@settings(deadline=None)
@given(kept=st.integers(0, len(WEIGHTS) - 1))
def test_any_truncation_is_seen(kept: int, folder: Path) -> None:
    path = write(folder, WEIGHTS[:kept])
    header = read_header(path)
    assert isinstance(header, Broken) or header.end != kept
    with pytest.raises(CheckpointIncomplete):
        read_weights([path])


@settings(deadline=None)
@given(garbage=st.binary(max_size=200))
def test_no_bytes_whatever_break_the_reader(garbage: bytes, folder: Path) -> None:
    path = write(folder, garbage)
    header = read_header(path)
    assert isinstance(header, Broken) or header.end >= 8


@settings(deadline=None)
@given(position=st.integers(0, len(WEIGHTS) - 1), value=st.integers(0, 255))
def test_a_flipped_byte_changes_the_digest_or_is_refused(position: int, value: int, folder: Path) -> None:
    changed = WEIGHTS[:position] + bytes([value]) + WEIGHTS[position + 1 :]
    if changed == WEIGHTS:
        return
    path = write(folder, changed)
    try:
        digest = read_weights([path]).digest
    except (CheckpointIncomplete, CheckpointUnreadable):
        return
    assert digest != hashlib.sha256(WEIGHTS).hexdigest()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes long"),
        (b"\x01\x02", "2 bytes long"),
        (struct.pack("<Q", 2**63) + b"x" * 50, "no safetensors header"),
        (struct.pack("<Q", 1000) + b"{}", "ends inside its header"),
        (with_header(b"this is no JSON"), "invalid header"),
        (with_header(b"\xff\xfe\x00"), "invalid header"),
        (with_header([1, 2]), "invalid header"),
        (with_header(b"[" * 100_000), "invalid header"),
        (with_header({"a": {"dtype": "F32"}}), "invalid header"),
        (with_header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}), "does not fit bytes"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}), "begins at"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}), "does not fit bytes"),
        (with_header({"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}), "invalid header"),
        (with_header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1E999]}}'), "invalid size inf"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.0]}}), "invalid size 4.0"),
        (with_header({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}), "invalid size True"),
        (with_header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [-4, 0]}}), "invalid size -4"),
        (with_header({"a": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}}), "of the wrong type"),
        (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}), "invalid header"),
        (with_header({"a": 1}), "invalid header"),
    ],
)
def test_a_broken_header_is_explained(content: bytes, words: str, tmp_path: Path) -> None:
    header = read_header(write(tmp_path, content))
    assert isinstance(header, Broken)
    assert words in header.text


def test_the_digest_is_what_sha256sum_says(tmp_path: Path) -> None:
    one, two = weights(1), weights(2)
    paths = [write(tmp_path, one, "a.safetensors"), write(tmp_path, two, "b.safetensors")]
    assert read_weights(paths[:1]).digest == hashlib.sha256(one).hexdigest()
    assert read_weights(paths).digest == hashlib.sha256(one + two).hexdigest()


def test_a_file_larger_than_the_buffer_is_read_in_pieces(tmp_path: Path) -> None:
    big = np.zeros(safetensors_file.CHUNK_BYTES // 4 * 2 + 3, dtype=np.float32)
    content = to_bytes({"big": big})
    assert read_weights([write(tmp_path, content)]).digest == hashlib.sha256(content).hexdigest()
    big[-1] = np.nan
    with pytest.raises(CheckpointUnreadable, match="tensor big"):
        read_weights([write(tmp_path, to_bytes({"big": big}))])


BAD = {
    "F64": [struct.pack("<d", value) for value in (np.nan, np.inf, -np.inf)],
    "F32": [struct.pack("<f", value) for value in (np.nan, np.inf, -np.inf)],
    "F16": [struct.pack("<e", value) for value in (np.nan, np.inf, -np.inf)],
    "BF16": [b"\x80\x7f", b"\x80\xff", b"\xc0\x7f", b"\x81\xff"],
    "F8_E5M2": [b"\x7c", b"\xfc", b"\x7f"],
    "F8_E4M3": [b"\x7f", b"\xff"],
}
GOOD = {
    "F64": [struct.pack("<d", value) for value in (0.0, -1.5, 1.7e308, 5e-324)],
    "F32": [struct.pack("<f", value) for value in (0.0, -0.0, 3.4e38, -3.4e38, 1e-45)],
    "F16": [struct.pack("<e", value) for value in (0.0, 65504.0, -65504.0)],
    "BF16": [b"\x00\x00", b"\x7f\x7f", b"\x7f\xff", b"\x00\x80"],
    "F8_E5M2": [b"\x7b", b"\xfb"],
    "F8_E4M3": [b"\x7e", b"\xfe"],
    "I64": [b"\xff" * 8],
    "U8": [b"\xff"],
    "BOOL": [b"\x01"],
}


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype, values in BAD.items() for value in values])
def test_nan_and_inf_of_every_type_are_found_and_the_tensor_is_named(dtype: str, value: bytes, tmp_path: Path) -> None:
    good = GOOD[dtype][0]
    content = raw({"first": (dtype, [1], good), "second": (dtype, [3], good + value + good)})
    with pytest.raises(CheckpointUnreadable, match=r"tensor second in .* contains NaN or Inf"):
        read_weights([write(tmp_path, content)])


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype, values in GOOD.items() for value in values])
def test_extreme_finite_numbers_pass(dtype: str, value: bytes, tmp_path: Path) -> None:
    assert read_weights([write(tmp_path, raw({"a": (dtype, [2], value * 2)}))]).digest


def test_types_of_tomorrow_and_empty_tensors_pass(tmp_path: Path) -> None:
    content = raw({"packed": ("F4", [5], b"\xff\xff\xff"), "none": ("F32", [0, 4], b"")})
    assert read_weights([write(tmp_path, content)]).digest


def test_bytes_after_the_last_tensor_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointIncomplete, match="longer"):
        read_weights([write(tmp_path, WEIGHTS + b"x")])
