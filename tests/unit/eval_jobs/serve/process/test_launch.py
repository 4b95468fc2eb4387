"""The command line and the environment of an engine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointUnreadable, ConfigError
from eval_jobs.serve.process.launch import Launch, command, environment, gpus_of, rank_of
from eval_jobs.types import Between, ServeSpec
from tests.tiny_model import checkpoint_record

PINS = Path("/pins")
FULL = checkpoint_record(PINS / "100")
ADAPTER = checkpoint_record(PINS / "a,b=c", base=PINS / "base")
LAUNCH = Launch(
    checkpoint=FULL,
    name="engine-abc",
    port=20123,
    on_cpu=True,
    tokenizer="/pins/100",
    lora_rank=0,
)
LAUNCH_ADAPTER = replace(LAUNCH, checkpoint=ADAPTER, lora_rank=4, adapter="engine-abc-d")


def argv(spec: ServeSpec | None = None, *, launch: Launch = LAUNCH) -> tuple[str, ...]:
    return command(launch, spec or ServeSpec(), python="/opt/vllm/bin/python")


def value_of(arguments: tuple[str, ...], name: str) -> str:
    return arguments[len(arguments) - 1 - arguments[::-1].index(name) + 1]


def test_a_full_checkpoint_is_served_under_the_random_name_on_this_machine_only() -> None:
    arguments = argv()
    assert arguments[:3] == ("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    assert value_of(arguments, "--model") == FULL.uri
    assert value_of(arguments, "--served-model-name") == "engine-abc"
    assert value_of(arguments, "--host") == "127.0.0.1"
    assert value_of(arguments, "--port") == "20123"
    assert "--enable-lora" not in arguments


def test_each_argument_is_there_when_it_is_wanted_and_only_then() -> None:
    on_gpu, sleeping = replace(LAUNCH, on_cpu=False), ServeSpec(between=Between.SLEEP)
    assert value_of(argv(), "--generation-config") == "vllm", "sampling defaults never come from the checkpoint"
    assert value_of(argv(ServeSpec(gpu_memory_utilization=0.3)), "--gpu-memory-utilization") == "0.3"
    assert value_of(argv(ServeSpec(args=("--gpu-memory-utilization", "0.4"))), "--gpu-memory-utilization") == "0.4"
    cases = [
        ("--disable-log-stats", argv(), False),
        ("--trust-remote-code", argv(), False),
        ("--trust-remote-code", argv(ServeSpec(trust_remote_code=True)), True),
        ("--gpu-memory-utilization", argv(), False),
        ("--enforce-eager", argv(), True),
        ("--enforce-eager", argv(launch=on_gpu), False),
        ("--enable-sleep-mode", argv(sleeping, launch=on_gpu), True),
        ("--enable-sleep-mode", argv(sleeping), False),
        ("--enable-sleep-mode", argv(launch=on_gpu), False),
    ]
    assert [(name, is_there) for name, found, is_there in cases if (name in found) is not is_there] == []


def test_an_adapter_is_served_beside_its_base_and_carries_the_random_name() -> None:
    arguments = argv(launch=LAUNCH_ADAPTER)
    assert value_of(arguments, "--model") == ADAPTER.base_model
    assert value_of(arguments, "--served-model-name") == "engine-abc"
    assert "--enable-lora" in arguments
    assert json.loads(value_of(arguments, "--lora-modules")) == {"name": "engine-abc-d", "path": ADAPTER.uri}


@pytest.mark.parametrize(("rank", "accepted"), [(1, "1"), (4, "8"), (8, "8"), (48, "64"), (512, "512")])
def test_the_rank_is_rounded_up_to_one_that_vllm_accepts(rank: int, accepted: str) -> None:
    arguments = argv(launch=replace(LAUNCH_ADAPTER, lora_rank=rank))
    assert value_of(arguments, "--max-lora-rank") == accepted


def test_an_adapter_without_a_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="missing base model"):
        argv(launch=replace(LAUNCH, checkpoint=replace(ADAPTER, base_model=None)))


def test_arguments_of_the_user_come_after_ours_and_before_the_identity() -> None:
    arguments = argv(ServeSpec(args=("--no-enforce-eager", "--max-num-seqs", "4"), max_model_len=256))
    assert arguments.index("--enforce-eager") < arguments.index("--no-enforce-eager") < arguments.index("--model")
    assert value_of(arguments, "--max-model-len") == "256"


@pytest.mark.parametrize(
    "args",
    [
        *(("--port", "1"), ("--port=1",), ("--served_model_name", "x"), ("--api-key", "secret"), ("--model", "x")),
        *(("--host", "0.0.0.0"), ("--hos=0.0.0.0",), ("--ud", "s"), ("--trust",), ("--trust_remote_code",)),
        *(("--config", "args.yaml"), ("--conf=args.yaml",), ("--hf_token=secret",)),
        *(("--enable-lora",), ("--worker-extension-cls", "x"), ("--enable_sleep_mode",), ("--max-cpu-loras", "9")),
    ],
)
def test_what_is_decided_elsewhere_is_refused_among_the_users_arguments(args: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"serve\.args must not contain --") as caught:
        argv(ServeSpec(args=args))
    assert "secret" not in str(caught.value)


def test_the_environment_is_the_users_but_for_what_is_ours() -> None:
    mine = {"PATH": "/bin", "VLLM_API_KEY": "secret"}
    env = environment(mine, cache_dir="/state/vllm-cache", on_cpu=True)
    assert env.items() >= {
        ("VLLM_NO_USAGE_STATS", "1"),
        ("HF_HUB_OFFLINE", "1"),
        ("VLLM_CACHE_ROOT", "/state/vllm-cache"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("PATH", "/bin"),
    }
    assert "VLLM_API_KEY" not in env, "it would lock us out of our own engine"
    set_by_hand = {"VLLM_CPU_KVCACHE_SPACE": "7", "HF_HUB_OFFLINE": "0"}
    assert environment(set_by_hand, cache_dir="/c", on_cpu=True).items() >= set_by_hand.items()
    on_gpu = environment({}, cache_dir="/c", on_cpu=False)
    assert not {"VLLM_CPU_KVCACHE_SPACE", "VLLM_BATCH_INVARIANT"} & on_gpu.keys()
    invariant = environment({}, cache_dir="/c", on_cpu=False, is_batch_invariant=True)
    assert invariant["VLLM_BATCH_INVARIANT"] == "1"


def test_the_server_listens_on_this_machine_only_whatever_the_user_adds() -> None:
    arguments = argv(ServeSpec(args=("--max-num-seqs", "4", "--enable-log-requests")))
    assert arguments[arguments.index("--host") :] == ("--host", "127.0.0.1", "--port", value_of(arguments, "--port"))
    assert arguments.count("--host") == 1


def test_what_would_open_more_routes_and_keys_that_it_does_not_need_are_not_passed_on() -> None:
    opening = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    keys = {"PGPASSWORD": "x", "GATEWAY_API_KEY": "x", "MLFLOW_TRACKING_PASSWORD": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    env = environment(
        opening | keys | {"HF_TOKEN": "needed", "VLLM_LOGGING_LEVEL": "DEBUG"},
        cache_dir="/state/vllm-cache",
        on_cpu=True,
    )
    assert not (opening | keys).keys() & env.keys()
    assert env.items() >= {("HF_TOKEN", "needed"), ("VLLM_LOGGING_LEVEL", "DEBUG")}


def test_what_swaps_need_comes_after_the_users_arguments() -> None:
    arguments = argv(ServeSpec(args=("--max-num-seqs", "4")), launch=replace(LAUNCH, swap_args=("--middleware", "g")))
    assert arguments.index("--max-num-seqs") < arguments.index("--middleware")


def test_a_user_may_want_fewer_active_adapters_but_not_fewer_that_stay_loaded() -> None:
    arguments = argv(ServeSpec(args=("--max-loras", "1")), launch=LAUNCH_ADAPTER)
    assert value_of(arguments, "--max-loras") == "1"
    assert value_of(arguments, "--max-cpu-loras") == "4"


@pytest.mark.parametrize(
    ("config", "rank"),
    [({"r": 8}, 8), ({"r": 8, "rank_pattern": {}}, 8), ({"r": 8, "rank_pattern": {"q_proj": 16}}, 16)],
)
def test_the_rank_of_an_adapter_is_its_largest_one(config: dict[str, object], rank: int) -> None:
    assert rank_of(config, where="adapter_config.json") == rank


@pytest.mark.parametrize("config", [{}, {"r": "8"}, {"r": 0}, {"r": 513}])
def test_an_adapter_without_a_usable_rank_is_unreadable(config: dict[str, object]) -> None:
    with pytest.raises(CheckpointUnreadable, match=r"adapter_config\.json"):
        rank_of(config, where="adapter_config.json")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), 1),
        (("--tensor-parallel-size", "4"), 4),
        (("--tensor_parallel_size=2", "-pp", "2", "-dp=3"), 12),
        (("-tp", "8", "--tensor-parallel-size", "2"), 2),
        (("--tp-size", "4", "--pp-size", "2"), 8),
        (("--tensor-parallel-size",), 1),
        (("--max-num-seqs", "4"), 1),
    ],
)
def test_an_engine_computes_on_as_many_gpus_as_its_arguments_say(args: tuple[str, ...], expected: int) -> None:
    assert gpus_of(args) == expected


def test_on_a_cpu_batch_invariance_is_never_asked_for() -> None:
    inherited = {"VLLM_BATCH_INVARIANT": "1"}
    env = environment(inherited, cache_dir="/c", on_cpu=True, is_batch_invariant=True)
    assert "VLLM_BATCH_INVARIANT" not in env, "vLLM 0.32 would start, and die of the first request"
