from pathlib import Path

import pytest

from eval_jobs.errors import CanaryFailed, ConfigError
from eval_jobs.serve.process.launch import Launch
from eval_jobs.serve.process.sglang_launch import command, sglang_environment
from eval_jobs.serve.resident.canary import ANSWER_TOKENS
from eval_jobs.serve.sglang.canary import read_reply
from eval_jobs.types import ServeSpec
from tests.tiny_model import checkpoint_record

CHECKPOINT = checkpoint_record(Path("/pins/100"))
LAUNCH = Launch(checkpoint=CHECKPOINT, name="engine-abc", port=20123, on_cpu=False, tokenizer="/pins/100")


def argv(spec: ServeSpec) -> tuple[str, ...]:
    return command(LAUNCH, spec, python="/opt/sglang/bin/python")


def value_of(arguments: tuple[str, ...], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_a_checkpoint_is_served_under_the_random_name_and_labelled_with_its_digest() -> None:
    arguments = argv(ServeSpec())
    assert arguments[:3] == ("/opt/sglang/bin/python", "-m", "sglang.launch_server")
    assert value_of(arguments, "--model-path") == CHECKPOINT.uri
    assert value_of(arguments, "--served-model-name") == "engine-abc"
    assert value_of(arguments, "--weight-version") == CHECKPOINT.digest
    assert (value_of(arguments, "--host"), value_of(arguments, "--port")) == ("127.0.0.1", "20123")


def test_sampling_defaults_never_come_from_the_checkpoint() -> None:
    assert value_of(argv(ServeSpec()), "--sampling-defaults") == "openai"


def test_settings_have_the_names_that_sglang_gives_them() -> None:
    arguments = argv(ServeSpec(max_model_len=256, gpu_memory_utilization=0.3, trust_remote_code=True, dtype="half"))
    assert value_of(arguments, "--context-length") == "256"
    assert value_of(arguments, "--mem-fraction-static") == "0.3"
    assert value_of(arguments, "--dtype") == "half"
    assert "--trust-remote-code" in arguments


@pytest.mark.parametrize(
    "args",
    [("--port", "1"), ("--port=1",), ("--model", "x"), ("--served", "x"), ("--api-key", "secret"), ("--dp-size", "2")],
)
def test_what_is_decided_elsewhere_is_refused_among_the_users_arguments(args: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"serve\.args must not contain --") as caught:
        argv(ServeSpec(args=args))
    assert "secret" not in str(caught.value)


def test_the_engine_gets_no_key_of_ours_and_looks_for_no_model_elsewhere() -> None:
    env = sglang_environment({"PATH": "/bin", "OPENAI_API_KEY": "secret"})
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["PATH"] == "/bin"
    assert "OPENAI_API_KEY" not in env


GOOD: dict[str, object] = {"output_token_logprobs": [[-0.5, 7, None]] * ANSWER_TOKENS, "weight_version": "d"}


def test_a_canary_holds_tokens_and_their_probabilities() -> None:
    canary = read_reply((1, 2), {"meta_info": GOOD}, "d")
    assert (canary.tokens, canary.logprobs) == ((7,) * ANSWER_TOKENS, (-0.5,) * ANSWER_TOKENS)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "lacks tokens"),
        ({}, "lacks tokens"),
        ({"meta_info": {}}, "lacks tokens"),
        ({"meta_info": GOOD | {"weight_version": "other"}}, "from the weights 'other'"),
        ({"meta_info": GOOD | {"output_token_logprobs": [[-0.5, 7, None]]}}, r"1 tokens \(expected 8\)"),
        ({"meta_info": GOOD | {"output_token_logprobs": [[float("nan"), 7, None]] * ANSWER_TOKENS}}, "NaN or Inf"),
        ({"meta_info": GOOD | {"output_token_logprobs": [[]] * ANSWER_TOKENS}}, "lacks tokens"),
        ({"meta_info": GOOD | {"output_token_logprobs": [[None, 7, None]] * ANSWER_TOKENS}}, "lacks tokens"),
    ],
)
def test_an_answer_that_proves_nothing_is_none(body: object, words: str) -> None:
    with pytest.raises(CanaryFailed, match=words):
        read_reply((1, 2), body, "d")
