"""Finds in an engine's log why it exited. Pure.

vLLM logs the actual reason first and a summary last ("Engine core initialization failed. See root cause above."), each
line with a prefix, so the last line alone does not show the reason. When it dies while serving, a process of the engine
logs the reason, and then the API server an EngineDeadError for every request.
"""

import re
import signal

from eval_jobs.host.unforeseen import exit_words

_PREFIX = re.compile(
    r"^(?:\x1b\[[0-9;]*m|\((?:[A-Za-z]+_?\S*) pid=\d+\)|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d"
    r"|\[[\w./]+:\d+\]|\s)+"
)
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?$|^Fatal Python error: .+")
_USAGE = re.compile(r"^\S+: error: .+")
_NO_MODULE = re.compile(r"^\S+: (?:No module named|Error while finding module specification) .+")
_PYDANTIC_TAIL = re.compile(r" \[type=\w+, input_value=.*$")
_SUMMARY = re.compile(
    r"See root cause above|stack trace (?:\(?above\)? )?for (?:the )?root cause|EngineDeadError|Executor failed\."
)
_DEAD = re.compile(r"^(?:\w+\.)*EngineDeadError\b")
_FATAL = re.compile(r"hit an exception|encountered a fatal error|Fatal Python error")
"""In the line before the traceback of what ends a running engine."""
_WORKER_DIED = re.compile(r"Worker proc \S+ died unexpectedly \(exit code: (-\d+)\)")
_API_SERVER = re.compile(r"^(?:\x1b\[[0-9;]*m)*\(APIServer ")
_HANDLED = "During handling of the above exception"

_INSTALL = (
    "install it there (pip install 'checkpoint-tracker[vllm]') or point serve.python at an environment that has it"
)
_TOKENIZER = (
    "save the tokenizer with the checkpoints, as Trainer(processing_class=tokenizer) does, "
    'or, with vLLM, set serve.args = ["--tokenizer", FOLDER]'
)
_GPU_MEMORY = (
    "if another process, such as the trainer, uses the GPU, select another GPU with CUDA_VISIBLE_DEVICES, "
    "or lower serve.gpu_memory_utilization, for example to 0.3"
)
_BATCH_INVARIANT = "this model has no batch-invariant kernels: export VLLM_BATCH_INVARIANT=0"
_SETTINGS = "fix the settings in [serve]"
OTHER_HEAD_SIZE = "serve it on a GPU, or train a model with another head size"
_ADVICE = (
    ("No module named 'vllm'", _INSTALL),
    ("No module named 'sglang'", "point serve.python at an environment that has SGLang"),
    ("api_server.py: error: ", _SETTINGS),
    ("entry.py: error: ", _SETTINGS),
    ("Couldn't instantiate the backend tokenizer", _TOKENIZER),
    ("Free memory on device", _GPU_MEMORY),
    ("batch_invariant", _BATCH_INVARIANT),
    ("VLLM_BATCH_INVARIANT", _BATCH_INVARIANT),
    ("CUDA out of memory", _GPU_MEMORY),
    ("Unsupported CPU attention configuration", OTHER_HEAD_SIZE),
    ("requested memory for kv", "free memory, or lower the environment variable VLLM_CPU_KVCACHE_SPACE"),
    ("Available memory on node", "lower serve.gpu_memory_utilization (on a CPU: fraction of system memory)"),
    ("KV cache memory", "lower serve.max_model_len; on a CPU, raise the environment variable VLLM_CPU_KVCACHE_SPACE"),
)

PORT_IN_USE = "address already in use"

REASON_CHARS = 600
"""Some reasons end with a dump of all settings."""


def last_error(text: str) -> str:
    """Return the line of `text` that best names the reason, without prefixes; "" for an empty log."""
    lines = [line for line in map(without_prefixes, text.splitlines()) if line]
    reasons = [_with_detail(lines, i) for i, line in enumerate(lines) if _names_reason(line)]
    if reasons:
        return reasons[-1][:REASON_CHARS]
    if lines:
        return lines[-1][:REASON_CHARS]
    return ""


def is_dead(text: str) -> bool:
    """Return whether the API server reported that the engine behind it is dead: it may still respond for a while."""
    lines = (line for line in text.splitlines() if "EngineDeadError" in line)
    return any(_DEAD.match(without_prefixes(line)) for line in lines)


def cause_of_death(text: str) -> str:
    """Return the first error that ended a running engine; "" if its log has none, as after a kill.

    Lines of the API server are ignored: they report rejected requests and the consequences. A worker that crashed in
    native code leaves a line about its exit only.
    """
    died = _WORKER_DIED.search(text)
    if died:
        code = int(died[1])
        return "" if code in {-signal.SIGKILL, -signal.SIGTERM} else f"a worker process was {exit_words(code)}"
    lines = list(filter(None, (without_prefixes(one) for one in text.splitlines() if not _API_SERVER.match(one))))
    begin = next((i for i, line in enumerate(lines) if _FATAL.search(line)), len(lines))
    for i, line in enumerate(lines[begin:], begin):
        if _names_reason(line) and not "".join(lines[i + 1 : i + 2]).startswith(_HANDLED):
            return _with_detail(lines, i)[:REASON_CHARS]
    return ""


def advice(reason: str, code: int) -> str:
    """Return advice for a known reason, as a clause that ends in "; ", else ""."""
    if code == -signal.SIGKILL:
        return "check `dmesg` for an out-of-memory kill; "
    return next((f"{words}; " for pattern, words in _ADVICE if pattern in reason), "")


def lacks_module(reason: str, module: str) -> bool:
    """Return whether Python did not find `module` inside its package, which is installed."""
    missing = re.search(r"No module named '?([\w.]+)", reason)
    return missing is not None and "." in missing[1] and f"{module}.".startswith(f"{missing[1]}.")


def without_prefixes(line: str) -> str:
    """Return `line` without vLLM's prefixes for process, level, time and source."""
    return _PREFIX.sub("", line).strip()


def _names_reason(line: str) -> bool:
    if _SUMMARY.search(line):
        return False
    return bool(_USAGE.match(line) or _NO_MODULE.match(line) or _EXCEPTION.match(line))


def _with_detail(lines: list[str], index: int) -> str:
    """Append the next line to Pydantic's "1 validation error for ModelConfig", which does not contain the error."""
    line = lines[index]
    detail = lines[index + 1 : index + 2]
    if "validation error" not in line or not detail:
        return line
    return f"{line}: {_PYDANTIC_TAIL.sub('', detail[0])}"
