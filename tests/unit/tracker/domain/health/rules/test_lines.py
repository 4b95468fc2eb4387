"""What lines of a log mean: every class on lines of our own, and healthy lines that look like trouble."""

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.requires import shared_data
from tracker.config.health import load_rules
from tracker.domain.health.logs.ranks import printed_rank
from tracker.domain.health.logs.step_lines import step_row
from tracker.domain.health.rules.lines import LineHit, nan_hit, plain_line, rule_hit

RULES = load_rules().lines

LINES: Mapping[str, tuple[str, ...]] = {
    "oom": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB",
        "[rank3]: torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "jaxlib.xla_extension.XlaRuntimeError: XLA: RESOURCE_EXHAUSTED: Out of memory allocating 1073741824 bytes",
    ),
    "host_oom": (
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=17.0. Some of the step tasks have been OOM Killed.",
        "Out of memory: Killed process 4711 (python) total-vm:812345kB",
        "OSError: [Errno 12] Cannot allocate memory",
    ),
    "nccl_timeout": (
        "[rank5]:[E1 ProcessGroupNCCL.cpp:607] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7",
        *(
            "[rank1]:[E1 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective op",
            "ration timeout: WorkNCCL(SeqNum=7",
        ),
    ),
    "nccl_error": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
    "cuda_error": ("RuntimeError: CUDA error: unspecified launch failure", "cudaErrorDevicesUnavailable: busy"),
    "illegal_memory": ("RuntimeError: CUDA error: an illegal memory access was encountered",),
    "ecc": ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "GPU 3: row remapping failed"),
    "xid_application": ("kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=123, name=python, Ch 00000010, MMU Fault",),
    "xid_hardware": ("[  77.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",),
    "nvlink": ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44", "NVLink: fatal error on link 3"),
    "segfault": (
        "Fatal Python error: Segmentation fault",
        "  exitcode  : -11 (pid: 555)",
        "python[812]: segfault at 7f00 ip 00007f sp 00007f error 4 in libcuda.so",
    ),
    "bus_error": ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.",),
    "disk_full": ("OSError: [Errno 28] No space left on device: '/ckpt/model.safetensors'",),
    "quota": ("OSError: [Errno 122] Disk quota exceeded",),
    "time_limit": ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",),
    "preempted": ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",),
    "node_failed": (
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE LOG ***",
        "srun: error: Node failure on n1",
    ),
    "cancelled": (
        "KeyboardInterrupt",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
        "Main process received SIGINT, exiting",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: Signals.SIGTERM",
        "W0601 12:00:00.000 77 torch/distributed/elastic/api.py:723] Received 15 death signal, shutting down workers",
    ),
    "worker_died": (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "Killing subprocess 4242",
        "['/bin/python', 'train.py'] exits with return code = -11",
    ),
    "rank_killed": (
        "['/bin/python', 'train.py'] exits with return code = -9",
        "E0601 12:00:00.000 77 torch/distributed/elastic/api.py:882] failed (exitcode: -9) local_rank: 1 (pid: 79)",
        "  traceback : Signal 9 (SIGKILL) received by PID 79",
    ),
    "python_error": (
        *("ValueError: bad config", "[rank2]: AssertionError", "my.pkg.errors.DataFormatError: row 7", "KeyError: 7"),
        *("StopIteration", "_queue.Empty", "subprocess.TimeoutExpired: Command 'x' timed out after 5 seconds"),
        "(WorkerDict pid=123, ip=10.0.0.1) ValueError: bad config",
        "ray.exceptions.RayTaskError(ValueError): ray::main() (pid=1)",
        "Epoch 0:   5%|#         | 5/100 [00:01<00:20,  4.6it/s, v_num=3]ValueError: x",
        "  5%|#    | 5/100 [00:01<00:20,  4.6batch/s]ValueError: x",
    ),
    "usage_error": ("train.py: error: unrecognized arguments: --lrr 1",),
    "hung_task": ("INFO: task python:280058 blocked for more than 120 seconds.",),
    "network": ("requests.exceptions.ConnectionError: Max retries exceeded with url: /api",),
    "nan": (
        *("Loss is nan, stopping training", "nan loss encountered at step 10", "loss is NaN", "Detected a NaN loss"),
        *("step 12 | loss: nan | lr: 0.1", "{'loss': inf, 'learning_rate': 1e-05, 'epoch': 0.5}"),
    ),
}
HEALTHY = (
    "step 12 | loss: 2.5 | lr: 0.1",
    "step:1/6200 train_loss:6.5 train_time:24ms step_avg:nanms",
    "WARNING: you may encounter an out-of-memory (OOM) error if your GPU does not have sufficient memory.",
    "NCCL version 2.27.3+cuda12.9",
    "[n1:0] NCCL WARN Call to ibv_open_device failed",
    "ncclTimeout: 600, 'nccl_timeout': 600,",
    "Double Bit ECC                    : 0",
    "| GPU  Name   Persistence-M| Bus-Id   Disp.A | Volatile Uncorr. ECC |",
    "checkpoint_tag_validation_fail  False",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536",
    "saving error analysis to errors.json",
    "class GradientError(Exception):",
    "['/bin/python', 'train.py'] exits with return code = 0",
    "NVLink topology found, using default settings",
    "INFO: this job can be preempted at any time; a checkpoint is saved",
    "Node settings: preemptible instance, will not be preempted",
    "If the job is preempted, it is requeued",
    "INFO disk full threshold: 0.95",
    "# Training will stop when reached time limit of 24h",
    "job exceeded time limit warning threshold set to 300",
    "WARNING: NCCL error handling is set to async",
    "Handling SIGSEGV with faulthandler",
    "If you see CUDA out of memory, lower the batch size",
    "Note: set PYTORCH_CUDA_ALLOC_CONF to avoid CUDA out of memory errors",
    "skipping the batch if loss is nan",
    "nan loss steps: 0",
    "[rank0]:[W1216 23:43:27.715 TCPStore.cpp:125] [c10d] recvValue failed: Failed to recv, got 0 bytes",
    "[W] TCPStore.cpp:125 recvValue failed, got 0 bytes. Connection was likely closed.",
    "MeanSquaredError: 0.123",
    "val/mean_absolute_error: 3 | step: 5",
    "RootMeanSquaredError: nan",
    "UserWarning: pg_options._timeout was specified, but timeout kwarg has a default value",
)
CLASSES = {
    "dataloader_killed": {"bus_error"},
    "disk_full": {"disk_full", "quota"},
    "hang": {"hung_task"},
    "illegal_memory_or_assert": {"illegal_memory"},
    "nan_loss": {"nan"},
    "network_error": {"network"},
    "xid": {"xid_application", "xid_hardware", "nvlink"},
    "loss_spike": {""},
    "benign": {""},
}
"""Our classes for the labels of the shared lines; a spike is seen in the series only."""


def hit_of(line: str) -> LineHit | None:
    plain = plain_line(line)
    row = step_row(plain)
    return rule_hit(plain, RULES) or (None if row is None else nan_hit(plain, row))


def name_of(line: str) -> str:
    hit = hit_of(line)
    return "" if hit is None else hit.trouble.name


def test_every_class_knows_its_lines() -> None:
    found = {name: [name_of(line) for line in lines] for name, lines in LINES.items()}
    assert found == {name: [name] * len(lines) for name, lines in LINES.items()}
    assert set(LINES) == {rule.name for rule in RULES} | {"nan"}


@pytest.mark.parametrize("line", HEALTHY)
def test_healthy_lines_show_no_trouble(line: str) -> None:
    assert name_of(line) == ""


def test_colours_and_progress_bars_before_the_text_are_left_out() -> None:
    line = "  3%|#   | 10/312 [00:43<20:20,  4.04s/it][rank7]: \x1b[31mValueError: no\x1b[0m"
    assert plain_line(line) == "[rank7]: ValueError: no"
    hit = hit_of(line)
    assert hit is not None
    assert (hit.trouble.name, hit.rank) == ("python_error", 7)
    assert plain_line("  50%|##  | 5/10 [00:01<00:01, 4.0it/s]").startswith("  50%")
    assert plain_line("a\rb\rc") == "c"
    assert plain_line("\r  5%|#    | 5/100 [00:01<00:20,  4.6it/s]" * 200 + "ValueError: x") == "ValueError: x"
    assert plain_line("\x1b[A  5%|#    | 5/100 [00:01<00:20,  4.6it/s]" * 200 + "ValueError: x") == "ValueError: x"


def test_a_line_of_several_ranks_is_that_of_the_rank_that_a_rule_fits() -> None:
    hit = hit_of("[rank1]:   File[rank0]: torch.OutOfMemoryError: CUDA out of memory")
    assert hit is not None
    assert (hit.trouble.name, hit.rank) == ("oom", 0)
    hit = hit_of('  File "x", line 3[rank5]: ValueError: bad')
    assert hit is not None
    assert (hit.line, hit.rank) == ("[rank5]: ValueError: bad", 5)


@pytest.mark.parametrize(
    ("line", "rank"), [("[rank12]: x", 12), ("[default3]: x", 3), ("7: x", 7), ("x 7: y", None), ("2026: year", 2026)]
)
def test_ranks_are_those_of_the_prefix(line: str, rank: int | None) -> None:
    assert printed_rank(line) == rank


def test_every_rule_says_what_to_do_and_causes_come_before_consequences() -> None:
    assert all(rule.trouble.hint for rule in RULES)
    assert [rule.trouble.order for rule in RULES] == list(range(len(RULES)))
    assert {rule.name for rule in RULES if rule.trouble.is_consequence} == {
        *("nccl_timeout", "rank_killed", "worker_died")
    }


def test_lines_of_real_logs_are_classed_as_labelled() -> None:
    rows = [json.loads(line) for line in (shared_data("incidents") / "incidents.jsonl").read_text().splitlines()]
    right, told, missed = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        wanted, found = CLASSES.get(row["label"], {row["label"]}), name_of(row["line"])
        right[row["label"]] += found in wanted
        told[row["label"]] += bool(found) and found not in wanted
        missed[row["label"]] += found not in wanted and "" not in wanted
    hits = sum(count for label, count in right.items() if "" not in CLASSES.get(label, {label}))
    assert hits / (hits + told.total()) >= 0.97
    assert hits / (hits + missed.total()) >= 0.97
