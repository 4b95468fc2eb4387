"""The evaluator's child process, which runs EvalScope: `python -m eval_jobs.evaluate.evalscope.child.main`.

EvalScope resets logging on import and reseeds the global random state, so it has its own process. One request is all
benchmarks of a suite: each has a thread that prepares and counts, and all share the threads that send requests.
The process ends when its stdin closes, so it never outlives its parent.
"""

import gc
import logging
import os
import random
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from evalscope import TaskConfig
from evalscope.api.dataset.hub import DatasetHub

from eval_jobs.errors import BadData, EvaluateError, EvaluatorDied, TrackerError, UnknownBenchmark
from eval_jobs.evaluate.asking.journal import Journal, PlanChanged
from eval_jobs.evaluate.asking.pipes import Send, own_stdout, requests_from_stdin
from eval_jobs.evaluate.asking.shared_pool import SharedPool, n_threads
from eval_jobs.evaluate.common.outputs import Outputs
from eval_jobs.evaluate.common.parse import Place
from eval_jobs.evaluate.common.protocol import PLANNED_FILE, Message, error_message
from eval_jobs.evaluate.evalscope.child.model_api import StrictAPI
from eval_jobs.evaluate.evalscope.child.own_benchmarks import register_own
from eval_jobs.evaluate.evalscope.child.recorder import Recorder
from eval_jobs.host.cpu_placement import CpuAffinity, set_niceness
from eval_jobs.host.plan_lock import held
from eval_jobs.host.storage import is_full, is_storage_error, storage_error

log = logging.getLogger("eval_jobs.evaluate.evalscope.child.main")


def main() -> None:
    """Serve requests until stdin closes."""
    send = own_stdout()
    requests = requests_from_stdin()
    register_own()
    gc.freeze()  # imported objects stay: the garbage collector need not scan them
    affinity = CpuAffinity()
    send({"type": "ready"})
    while True:
        request = requests.get()
        affinity.set(request["client_cores"])
        set_niceness(os.getpgrp(), request["client_niceness"])
        carry_out_request(request, send)


def trust_no_data_set() -> None:
    """Disable code that comes with a data set: EvalScope trusts all data sets of ModelScope.

    Raises:
        EvaluateError: this version of EvalScope decides it elsewhere.
    """
    if "trust_remote" not in getattr(DatasetHub, "__dataclass_fields__", ()):
        raise EvaluateError(
            "cannot disable code that comes with data sets: EvalScope's DatasetHub has no `trust_remote`",
            hint="install a version of EvalScope that the tracker supports",
        )
    DatasetHub.trust_remote = property(lambda _: False, lambda _, __: None)


def carry_out_request(request: Message, send: Send) -> None:
    """Evaluate the benchmarks of one request at the same time, and send the outcome of each."""
    try:
        trust_no_data_set()
        api = StrictAPI(request)
    except TrackerError as error:
        for task in request["tasks"]:
            send(error_message(error) | {"benchmark": task["benchmark"], "asking_s": 0.0})
        return
    with SharedPool(n_threads(request["concurrency"])) as pool:
        shared = _Shared(api=api, pool=pool, loading=threading.Lock(), lost_s=tuple(request["retry_policy"]["lost_s"]))
        threads = []
        for task in request["tasks"]:
            journal = Journal(task, send)
            shared.loading.acquire()  # so that they load in the order of the request
            threads.append(threading.Thread(target=_send_outcome, args=(task, journal, shared, send), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
    api.client.close()


@dataclass(frozen=True, kw_only=True)
class _Shared:
    api: StrictAPI
    pool: SharedPool
    loading: threading.Lock
    """Held while a benchmark loads data: all benchmarks draw from the one random state of the process."""
    lost_s: tuple[float, ...]
    """Seconds before each further pass over what is missing; `RetryPolicy.lost_s`."""


def _send_outcome(task: Message, journal: Journal, shared: _Shared, send: Send) -> None:
    """Evaluate one benchmark and send its result or error; `shared.loading` is held on entry."""
    # The parent's lock ends with the parent. If this process hangs then, no other process may write here.
    ours = journal.folder.parent / f"{journal.folder.name}.lock"
    message: Message
    with ExitStack() as loading:
        loading.callback(shared.loading.release)
        try:
            with held(ours, on_wait=lambda: log.warning("waiting for another evaluator in %s", journal.folder)):
                _evaluate(task, journal, shared, loading)
            counts = {"planned": journal.planned, "left_out": journal.left_out}
            message = {"type": "result", "metric": journal.metric, **counts}
        except TrackerError as error:
            message = error_message(error)
        except BaseException as error:  # code of a benchmark may call `sys.exit`: the parent would wait forever
            log.exception("%s failed while %s", journal.name, journal.stage)
            message = error_message(_explained(error, task, journal))
    send(message | {"benchmark": journal.name, "asking_s": journal.asking_s})


def _evaluate(task: Message, journal: Journal, shared: _Shared, loading: ExitStack) -> None:
    """Evaluate all samples; then, after each pause of `lost_s`, those that may get a result on a retry."""
    for pause_s in (*shared.lost_s, None):
        _pass(task["task"], journal, shared, loading)
        outputs = Outputs(journal.folder, task["task"]["datasets"][0])
        lost = outputs.lost_answers(journal.failures)
        again = (*journal.doubtful, *lost, *outputs.lost_scores(journal.failures))
        if pause_s is None or not again:
            break
        log.warning("%s: retrying in %.0f s the samples without a result: %s", journal.name, pause_s, again)
        shared.api.limiter.stopped.wait(pause_s)
        journal.begin_again()
        loading.enter_context(shared.loading)
    _check_complete(journal, lost)


def _pass(task: Message, journal: Journal, shared: _Shared, loading: ExitStack) -> None:
    """Request the missing answers; `shared.loading` is held on entry, and released by closing `loading`."""
    journal.drop_torn_lines()
    try:
        _run(task, journal, shared, loading)
    except PlanChanged:
        # Another EvalScope version, other data, or a file truncated by a kill: no stored answer can be trusted.
        log.warning("restarting %s: its stored answers cannot be reused", journal.name)
        shutil.rmtree(journal.folder)
        _run(task, journal, shared, loading)


def _run(task: Message, journal: Journal, shared: _Shared, loading: ExitStack) -> None:
    journal.stage = "configuring"
    resumed = str(journal.folder) if (journal.folder / PLANNED_FILE).is_file() else None
    try:
        config = TaskConfig(model=shared.api, api_url=None, use_cache=resumed, **task)
        random.seed(config.seed)
        np.random.seed(config.seed)
        Recorder(config, journal=journal, pool=shared.pool, on_loaded=loading.close).eval()
    except Exception as error:
        closed = shared.api.breaker.error
        if closed is None:  # with a stopped breaker, the error of another sample may come first
            raise
        raise journal.stopped(closed, str(shared.api.base_url)) from error


def _check_complete(journal: Journal, lost: Sequence[Place]) -> None:
    """Reject a result that only shows a fault of the data, the server or the disk."""
    name = journal.name
    if not journal.planned:
        raise BadData(f"`{name}` has no samples", hint="check its data and subsets")
    journal.check()
    if lost:
        raise EvaluatorDied(
            f"{len(lost)} of {journal.planned} answers of `{name}` have disappeared from {journal.folder}",
            hint="check the disk, and whether another program deletes files there; a retry requests the answers again",
        )


def _explained(error: BaseException, task: Message, journal: Journal) -> TrackerError:
    name, stage, text = journal.name, journal.stage, f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and (is_full(error) or (stage == "evaluating" and is_storage_error(error))):
        return storage_error(Path(journal.folder), error)
    if isinstance(error, ImportError):
        return EvaluateError(f"`{name}` needs a package that is not installed: {error}", hint="install that package")
    if stage == "loading" and not any("local_path" in args for args in task["task"]["dataset_args"].values()):
        # The hub's library may write in Chinese, and its reasons are pages long: they stand in the log.
        what = f"cannot download the data of `{name}` from {task['task']['dataset_hub']} ({type(error).__name__})"
        return BadData(what, hint="check the network, set `data` to a local copy, or suite.dataset_hub to another hub")
    if stage == "loading":
        hint = "check the files in `data`"
        return BadData(f"cannot load the data of `{name}`: {text}", hint=hint)
    if stage == "configuring" and "not found" in str(error):
        return UnknownBenchmark(f"EvalScope does not know the benchmark of `{name}`: {error}", hint="check its name")
    return EvaluateError(f"EvalScope failed on `{name}` while {stage}: {text}", hint="read the traceback")


if __name__ == "__main__":
    main()
