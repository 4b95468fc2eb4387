"""Facts about an engine, a model and questions -> findings. Pure."""

from collections.abc import Iterator, Sequence

from eval_jobs.evaluate.common.task_config import max_tokens
from eval_jobs.evaluate.lm_eval.command import is_chat
from eval_jobs.records.preflight import EngineEnvironment, ModelFacts, PromptLengths
from eval_jobs.serve.process.logfile import OTHER_HEAD_SIZE
from eval_jobs.serve.process.versions import why_untested
from eval_jobs.types import Benchmark, EngineKind, ServeSpec, Suite
from tracker.domain.readiness.finding import Finding, error, ok, warning
from tracker.domain.records.display import bytes_text, count_text

ENGINE, MODEL = "engine", "model"
PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}\\n{% endfor %}"
"""For base models: the questions alone, one line each."""
TEMPLATE_TOKENS = 16
"""Room for the tokens that a chat template adds, which are not counted."""
DEFAULT_MEMORY_SHARE = 0.9
"""Of vLLM, without serve.gpu_memory_utilization."""
ODD_ROWS = "correct or remove these rows, unless they are meant: each one counts"
_BFLOAT16_FROM = (8, 0)
"""Minimum compute capability for bfloat16 (vllm/platforms/cuda.py)."""


def engine_findings(found: EngineEnvironment, spec: ServeSpec) -> Iterator[Finding]:
    """Yield findings about the environment of `serve.python` and its devices."""
    name = {EngineKind.VLLM: "vLLM", EngineKind.SGLANG: "SGLang"}[spec.engine]
    if not found.version:
        yield error(
            ENGINE,
            f"{name} is not installed in the environment of {found.python}",
            "set serve.python to the python of an environment with it, or run pip install 'checkpoint-tracker[vllm]'",
        )
        return
    if spec.engine is EngineKind.VLLM and (why := why_untested(found.version)):
        yield warning(ENGINE, why, "if evaluations fail, install a tested version, and report the problem")
    if not found.on_cpu and found.torch.endswith("+cpu"):
        yield warning(
            ENGINE,
            f"this machine has a GPU, but PyTorch {found.torch} in {found.python} is a CPU build",
            "set serve.python to the python of an environment with the CUDA build of vLLM",
        )
    share = spec.gpu_memory_utilization or DEFAULT_MEMORY_SHARE
    if found.free_share is not None and found.free_share < share:
        yield warning(
            ENGINE,
            f"{found.free_share:.0%} of the memory is free, and an engine needs {share:.0%} to start",
            f"set serve.gpu_memory_utilization = {memory_share(found)}, or end the process that uses the memory",
        )
    device = "CPU" if found.on_cpu else "GPU"
    memory = "" if found.memory_bytes is None else f" with {bytes_text(found.memory_bytes)} of memory"
    yield ok(ENGINE, f"{name} {found.version} in {found.python}; {device}{memory}")


def model_findings(
    model: ModelFacts, found: EngineEnvironment | None, spec: ServeSpec, benchmarks: Sequence[Benchmark]
) -> Iterator[Finding]:
    """Yield findings about a checkpoint; without `found`, the engine's machine is unknown."""
    if found is not None:
        yield from _device_findings(model, found, spec)
    if not model.tokenizer and "--tokenizer" not in _names(spec.args):
        yield error(
            MODEL,
            f"no tokenizer in {model.where}",
            "save it with the checkpoints, as Trainer(processing_class=tokenizer) does, "
            'or set serve.args = ["--tokenizer", FOLDER]',
        )
    elif not model.has_chat_template and "--chat-template" not in _names(spec.args):
        yield from _without_template(model, benchmarks)
    if model.max_length is not None and (spec.max_model_len or 0) > model.max_length:
        yield error(
            MODEL,
            f"serve.max_model_len is {spec.max_model_len}, but the model's maximum is {model.max_length} tokens",
            f"set serve.max_model_len to at most {model.max_length}",
        )
    length = model_length(model, spec)
    limit = "unknown maximum length" if length is None else f"at most {length} tokens"
    yield ok(MODEL, f"{model.where}: {bytes_text(model.weights_bytes)}, {limit}")


def base_finding(base: str, adapter: str, *, is_path: bool, is_offline: bool) -> Finding:
    """Return the finding about the base model of an adapter that is not on this machine; `is_offline`: the engine."""
    if is_path:
        hint = "restore it, or correct base_model_name_or_path in adapter_config.json"
        return error(MODEL, f"no base model at {base}, required by {adapter}", hint)
    if is_offline:
        hint = (
            f"run `hf download {base}`, or export HF_HUB_OFFLINE=0 to let the engine download it; "
            "if it is a folder, write its absolute path into adapter_config.json"
        )
        message = f"the base model {base} of {adapter} is not in the Hugging Face cache, nor in a folder above it"
        return error(MODEL, message, hint)
    return ok(MODEL, f"{adapter}: the engine downloads the base model {base}")


def length_finding(
    lengths: PromptLengths | None, benchmark: Benchmark, suite: Suite, model: ModelFacts, spec: ServeSpec
) -> Finding:
    """Return whether the questions of a benchmark fit into the model's length together with the answers."""
    answer, length, subject = max_tokens(benchmark, suite), model_length(model, spec), benchmark_subject(benchmark)
    counted = "" if lengths is None else f"{count_text(lengths.questions, 'question')}, "
    if length is None or (answer < length and lengths is None):
        return ok(subject, f"{counted or 'prompts not counted, '}max_tokens = {answer}")
    if lengths is None:
        limited = f"max_tokens is {answer}, but prompt and answer together have at most {length} tokens"
        return error(subject, limited, f"set max_tokens to less than {length}{_or_longer(model, spec)}")
    longest, too_long = lengths.tokens[0], sum(tokens + answer > length for tokens in lengths.tokens)
    if not too_long:
        return ok(subject, f"{counted}longest {longest} tokens, max_tokens = {answer}")
    room = length - longest - TEMPLATE_TOKENS
    hint = f"lower max_tokens to {room}" if room > 0 else "remove or shorten these questions"
    message = (
        f"{too_long} of {count_text(lengths.questions, 'question')} too long: the longest has {longest} tokens, "
        f"which with max_tokens = {answer} exceeds {length}"
    )
    raising = error if too_long == lengths.questions else warning
    return raising(subject, message, f"{hint}{_or_longer(model, spec)}")


def model_length(model: ModelFacts, spec: ServeSpec) -> int | None:
    """Return the maximum length of prompt and answer in tokens; None: unknown."""
    return spec.max_model_len or model.max_length


def lacks_bfloat16(found: EngineEnvironment) -> bool:
    """Return whether a GPU is too old for bfloat16."""
    return found.compute_capability is not None and found.compute_capability < _BFLOAT16_FROM


def memory_share(found: EngineEnvironment) -> float:
    """Return a `serve.gpu_memory_utilization` that leaves room for other processes."""
    return max(5, int(80 * (found.free_share or 0.0))) / 100


def benchmark_subject(benchmark: Benchmark) -> str:
    """Return the subject of findings about a benchmark."""
    return f"benchmark {benchmark.name}"


def _or_longer(model: ModelFacts, spec: ServeSpec) -> str:
    if spec.max_model_len is None or (model.max_length or spec.max_model_len) <= spec.max_model_len:
        return ""
    return f", or raise serve.max_model_len up to {model.max_length}"


def _device_findings(model: ModelFacts, found: EngineEnvironment, spec: ServeSpec) -> Iterator[Finding]:
    if found.memory_bytes is not None and _needed_bytes(model, spec) > found.memory_bytes:
        yield error(
            MODEL,
            f"its weights ({bytes_text(model.weights_bytes)}) exceed the memory of {bytes_text(found.memory_bytes)}",
            'use more GPUs, such as serve.args = ["--tensor-parallel-size", "2"], or a larger machine',
        )
    dtype = model.dtype if spec.dtype == "auto" else spec.dtype
    if dtype == "bfloat16" and lacks_bfloat16(found):
        yield error(MODEL, "its dtype is bfloat16, which this GPU does not support", 'set serve.dtype = "float16"')
    if found.head_sizes and model.head_size is not None and model.head_size not in found.head_sizes:
        # The kernels of an untested version may compute more than its list states.
        raising = warning if why_untested(found.version) else error
        sizes = ", ".join(map(str, found.head_sizes))
        message = f"its attention heads have size {model.head_size}; vLLM {found.version} on a CPU supports {sizes}"
        yield raising(MODEL, message, OTHER_HEAD_SIZE)


def _needed_bytes(model: ModelFacts, spec: ServeSpec) -> int:
    """Return a lower bound: an engine converts float32 weights to 16 bits, unless it is set not to."""
    halves = model.dtype in ("float32", "") and spec.dtype != "float32"
    return model.weights_bytes // 2 if halves else model.weights_bytes


def _without_template(model: ModelFacts, benchmarks: Sequence[Benchmark]) -> Iterator[Finding]:
    chats = [benchmark.name for benchmark in benchmarks if benchmark.program is None or is_chat(benchmark)]
    if chats:
        yield error(
            MODEL,
            f"no chat template in {model.tokenizer}, and {', '.join(chats)} sends chat messages",
            f"for a base model, set serve.args = ['--chat-template', '{PLAIN_TEMPLATE}']; "
            "otherwise save the template with the tokenizer",
        )


def _names(args: Sequence[str]) -> set[str]:
    return {argument.split("=", 1)[0].replace("_", "-") for argument in args}
