"""Certificates and refusals: what makes them equal, what counts more, and that a broken file is none."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.serve.resident.certificate import (
    CertificateScope,
    Proof,
    canaries_digest,
    every_proof,
    extension_version,
    find_certificate,
    first_difference,
    store,
)
from eval_jobs.types import Canary
from tests.requires import PROJECT

KIND = CertificateScope(
    way="swap",
    architecture="LlamaForCausalLM",
    layout="l",
    config="c",
    weights="BF16",
    dtype="auto",
    quantisation="",
    device="cpu",
    engine="vllm 0.32.0",
    flags=("--max-num-seqs", "4"),
    process="p",
    extension="e",
    asleep=0,
)
COLD = (
    Canary(prompt=(1, 2), tokens=(5, 6), logprobs=(-0.5, -0.25)),
    Canary(prompt=(3,), tokens=(7, 8), logprobs=(-1.0, -2.0)),
)


def other_at(row: int, **changes: object) -> tuple[Canary, ...]:
    return tuple(replace(canary, **changes) if i == row else canary for i, canary in enumerate(COLD))  # type: ignore[arg-type]


def certificate() -> Proof:
    return Proof(
        kind=KIND,
        date=datetime(2026, 1, 2, tzinfo=UTC),
        checkpoint="tiny step 100 (0123456789ab)",
        canaries=canaries_digest(COLD),
        took_s=21.5,
        differed=first_difference(COLD, COLD),
    )


def refusal() -> Proof:
    return replace(certificate(), differed="it answered NaN")


def test_equal_answers_are_a_certificate() -> None:
    assert certificate().is_certificate
    assert not refusal().is_certificate


@pytest.mark.parametrize(
    ("warm", "words"),
    [
        (other_at(1, tokens=(7, 9)), "output 2: token 2 is 9 (expected 8)"),
        (other_at(0, logprobs=(-0.5, -0.25 - 2**-54)), "output 1: log probabilities differ by up to 5.55e-17"),
        (other_at(0, prompt=(1, 3)), "prompt 1 differs"),
        (COLD[:1], "outputs: 1 (expected 2)"),
    ],
)
def test_the_smallest_difference_is_said_in_words(warm: tuple[Canary, ...], words: str) -> None:
    assert first_difference(warm, COLD) == words


def test_the_digest_sees_the_last_bit() -> None:
    assert canaries_digest(COLD) != canaries_digest(other_at(0, logprobs=(-0.5, -0.25 - 2**-54)))


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"way": "adapter"},
            {"architecture": "Qwen2ForCausalLM"},
            {"layout": "m"},
            {"config": "d"},
            {"weights": "F32"},
        ),
        *({"dtype": "float32"}, {"quantisation": "fp8"}, {"device": "NVIDIA H100"}, {"engine": "vllm 0.33.0"}),
        *({"flags": ()}, {"process": "q"}, {"extension": "f"}, {"asleep": 2}),
    ],
)
def test_a_certificate_is_of_no_use_for_anything_else(tmp_path: Path, change: dict[str, object]) -> None:
    store(tmp_path, certificate())
    assert find_certificate(tmp_path, KIND) == certificate()
    assert find_certificate(tmp_path, replace(KIND, **change)) is None  # type: ignore[arg-type]


def test_a_refusal_counts_more_than_a_certificate_whichever_came_last(tmp_path: Path) -> None:
    for proof in (certificate(), refusal(), certificate()):
        store(tmp_path, proof)
    assert find_certificate(tmp_path, KIND) == refusal()
    assert [proof.is_certificate for _, proof in every_proof(tmp_path)] == [True, False]


def test_a_file_that_holds_another_kind_than_its_name_says_is_none(tmp_path: Path) -> None:
    store(tmp_path, certificate())
    (file,) = tmp_path.iterdir()
    other = replace(KIND, engine="vllm 0.33.0")
    file.rename(tmp_path / file.name.replace(KIND.id, other.id))
    assert find_certificate(tmp_path, other) is None
    assert list(every_proof(tmp_path)) == []


def test_a_disk_that_takes_nothing_costs_only_another_try(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    store(tmp_path / "file", certificate())
    assert "cannot store the result of a weight swap check: E-SERVE: cannot write" in caplog.text


def test_a_kill_while_it_is_written_leaves_a_whole_one_or_none(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from tests.unit.eval_jobs.serve.resident.test_certificate import certificate, store\n"
        "pathlib.Path.replace = lambda self, target: os._exit(9)\n"
        "store(pathlib.Path(sys.argv[1]), certificate())\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=PROJECT, check=False)
    assert killed.returncode == 9
    assert find_certificate(tmp_path, KIND) is None
    assert list(every_proof(tmp_path)) == []
    store(tmp_path, certificate())
    assert find_certificate(tmp_path, KIND) == certificate()


def test_the_code_that_loads_weights_has_a_version() -> None:
    assert len(extension_version()) == 32
