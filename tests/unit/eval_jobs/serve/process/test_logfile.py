"""The reason why an engine ended, from its log. The samples are vLLM 0.32's own, shortened."""

import pytest

from eval_jobs.host.unforeseen import exit_words
from eval_jobs.serve.process.logfile import (
    REASON_CHARS,
    advice,
    cause_of_death,
    is_dead,
    lacks_module,
    last_error,
    without_prefixes,
)

WORKER_FAILED = """\
(APIServer pid=23085) WARNING 11-20 12:25:06 [system_utils.py:255] Found ulimit of 20000 and failed with error limit
(Worker pid=23269) ERROR 11-20 12:25:36 [multiproc_executor.py:953] WorkerProc failed to start.
(Worker pid=23269) ERROR 11-20 12:25:36 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=23269) ERROR 11-20 12:25:36 [multiproc_executor.py:953]     worker = WorkerProc(*args, **kwargs)
(Worker pid=23269) ERROR 11-20 12:25:36 [multiproc_executor.py:953] safetensors._safetensors_rust.SafetensorError: \
Error while deserializing header: incomplete metadata, file not fully covered
(EngineCore pid=23252) ERROR 11-20 12:25:40 [core.py:1510] Exception: WorkerProc initialization failed due to an \
exception in a background process. See stack trace for root cause.
Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
Traceback (most recent call last):
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: There appear to be 1 leaked \
shared_memory objects to clean up at shutdown
"""

WORKER_REASON = (
    "safetensors._safetensors_rust.SafetensorError: "
    "Error while deserializing header: incomplete metadata, file not fully covered"
)

USAGE = """\
                     [--additional-config ADDITIONAL_CONFIG]
                     [model_tag]
api_server.py: error: unrecognized arguments: --nonsense
"""

CHAINED = """\
json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 20 (char 19)

During handling of the above exception, another exception occurred:

    raise OSError(f"It looks like the config file at '{resolved_config_file}' is not a valid JSON file.")
OSError: It looks like the config file at '/pins/100/config.json' is not a valid JSON file.
"""

PYDANTIC = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, Invalid repository ID or local directory specified: '/pins/100'. \
[type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': 1}), input_type=ArgsKwargs]
Please verify the following requirements:
"""

PYDANTIC_REASON = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: "
    "Value error, Invalid repository ID or local directory specified: '/pins/100'."
)

NO_VLLM = """\
/opt/bare/bin/python: Error while finding module specification for 'vllm.entrypoints.openai.api_server' \
(ModuleNotFoundError: No module named 'vllm')
"""


HEAD_SIZE = "RuntimeError: Unsupported CPU attention configuration: head_dim=16 isa=2 kv_cache_idx=0"

DEAD = """\
(APIServer pid=667) ERROR 11-24 03:47:08 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
"""

DIED = f"""\
(EngineCore pid=692) ImportError: an optional library is not installed
(APIServer pid=667) ERROR 11-24 03:47:07 [error.py:1] ValueError: the request of a sample is too long
(Worker pid=706) ERROR 11-24 03:47:08 [multiproc_executor.py:1063] WorkerProc hit an exception.
(Worker pid=706) ERROR 11-24 03:47:08 [multiproc_executor.py:1063] Traceback (most recent call last):
(Worker pid=706) ERROR 11-24 03:47:08 [multiproc_executor.py:1063]     return fn(*args, **kwargs)
(Worker pid=706) ERROR 11-24 03:47:08 [multiproc_executor.py:1063] {HEAD_SIZE}
(Worker pid=707) ERROR 11-24 03:47:08 [multiproc_executor.py:1063] RuntimeError: the other worker is gone
(EngineCore pid=692) ERROR 11-24 03:47:08 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=692) ERROR 11-24 03:47:08 [core.py:1512] RuntimeError: Worker failed with error 'Unsupported CPU \
attention configuration: head_dim=16', please check the stack trace above for the root cause
{DEAD}asyncio.exceptions.CancelledError
"""

CRASHED = "(EngineCore pid=1) Fatal Python error: Segmentation fault\n" + DEAD
KILLED = f"""\
(EngineCore pid=692) ERROR 11-24 03:47:08 [executor.py:316] Worker proc VllmWorker-0 died unexpectedly (exit code: -9)
(EngineCore pid=692) ERROR 11-24 03:47:08 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=692) ERROR 11-24 03:47:08 [core.py:1512] RuntimeError: Executor failed.
{DEAD}"""
ILLEGAL = KILLED.replace("-9", "-4").replace("Executor failed.", "cancelled")
WRAPPED = "EngineCore encountered a fatal error.\nKeyError: 'a'\n\n" + CHAINED.partition("\n\n")[2] + DEAD


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (DIED, HEAD_SIZE),
        (CRASHED, "Fatal Python error: Segmentation fault"),
        (WRAPPED, "OSError: It looks like the config file at '/pins/100/config.json' is not a valid JSON file."),
        (KILLED, ""),
        (ILLEGAL, "a worker process was killed by SIGILL"),
        (DEAD, ""),
    ],
    ids=["worker", "crash", "handled", "killed worker", "crashed worker", "killed engine"],
)
def test_the_first_cause_of_a_death_is_quoted_and_none_of_its_consequences(text: str, cause: str) -> None:
    assert is_dead(text)
    assert cause_of_death(text) == cause


def test_an_engine_is_not_dead_because_a_text_names_the_error() -> None:
    assert not is_dead("INFO 11-24 03:47:08 [a.py:1] prompt: what is an EngineDeadError?\nValueError: a bad request\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKER_FAILED, WORKER_REASON),
        (USAGE, "api_server.py: error: unrecognized arguments: --nonsense"),
        (CHAINED, "OSError: It looks like the config file at '/pins/100/config.json' is not a valid JSON file."),
        (PYDANTIC, PYDANTIC_REASON),
        (NO_VLLM, NO_VLLM.strip()),
        ("Exception: plain\n", "Exception: plain"),
        ("Illegal instruction\n\n", "Illegal instruction"),
        ("\n \n", ""),
        ("", ""),
    ],
    ids=["worker", "usage", "chained", "pydantic", "no vllm", "bare", "no exception", "blank", "empty"],
)
def test_the_line_that_names_the_root_cause_is_found(text: str, reason: str) -> None:
    assert last_error(text) == reason


def test_a_reason_is_cut_before_it_fills_the_screen() -> None:
    assert len(last_error("ValueError: " + "x" * 5000)) == REASON_CHARS


def test_the_prefixes_of_a_line_are_taken_off_and_the_line_is_kept() -> None:
    line = "\x1b[0;36m(EngineCore pid=12)\x1b[0;0m INFO 11-20 12:25:06 [gpu/model.py:7] Loading (2 of 3) [x]"
    assert without_prefixes(line) == "Loading (2 of 3) [x]"
    assert without_prefixes("(not a prefix) text") == "(not a prefix) text"


def test_exit_codes_are_said_as_a_person_would() -> None:
    assert exit_words(2) == "exit code 2"
    assert exit_words(-9) == "killed by SIGKILL"
    assert exit_words(-99) == "killed by signal 99"


def test_known_causes_come_with_what_to_do() -> None:
    assert "serve.python" in advice(NO_VLLM, 1)
    assert "settings in [serve]" in advice(USAGE, 2)
    assert "memory" in advice("", -9)
    assert "CUDA_VISIBLE_DEVICES" in advice("ValueError: Free memory on device cuda:0 (1.2/79.1 GiB) on startup is", 1)
    on_a_cpu = "ValueError: Available memory on node 0 (1.2/7.8 GiB) on "
    assert "serve.gpu_memory_utilization" in advice(on_a_cpu + "startup is below what the worker asks for", 1)
    assert "KVCACHE" in advice(on_a_cpu + "kv cache allocation is less than requested memory for kv (4.0 GiB).", 1)
    assert "another head size" in advice(HEAD_SIZE, 0)
    assert "settings in [serve]" in advice("entry.py: error: unrecognized arguments: --nonsense", 2)
    assert advice(WORKER_FAILED, 1) == ""


@pytest.mark.parametrize(
    ("reason", "lacks"),
    [
        ("/opt/bin/python: No module named vllm.entrypoints.openai.api_server", True),
        ("/opt/bin/python: No module named 'vllm.entrypoints.openai'", True),
        (NO_VLLM, False),
        ("ModuleNotFoundError: No module named 'vllm.entrypoints.openai.api_server_of_a_plugin'", False),
        ("ModuleNotFoundError: No module named 'torchvision'", False),
        ("", False),
    ],
)
def test_a_launcher_that_is_gone_is_known_from_an_engine_that_is_not_installed(reason: str, lacks: bool) -> None:  # noqa: FBT001
    assert lacks_module(reason, "vllm.entrypoints.openai.api_server") is lacks
