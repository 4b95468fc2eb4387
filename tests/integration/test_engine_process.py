"""Starting, stopping and finding engines as real processes, with a stand-in for vLLM that starts in 50 ms."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import (
    CheckpointNotFound,
    CheckpointUnreadable,
    ConfigError,
    DiskFull,
    PortTaken,
    ServeError,
    ServerDied,
    ServerKilled,
    StartTimeout,
    TrackerError,
    WrongModel,
)
from eval_jobs.host import proc
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.lifecycle import EngineRecord, mapped_os_errors, reap
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Checkpoint, Endpoint, ServeSpec
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.serving_worker import start_worker, wait_for_line
from tests.fakes.vllm_stand_in import ROOT_CAUSE, write_interpreter, write_interpreter_without_vllm
from tests.integration.left_behind import record_of, wait_for_end, writers
from tests.tiny_model import checkpoint_record, write_checkpoint, write_lora
from tests.warm_engines import LeapingClock

CLOCK = SystemClock()


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def engine(work_dir: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine(work_dir, CLOCK)
    yield engine
    engine.close()
    assert not list(work_dir.glob("engines/*.pid"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return checkpoint_record(write_checkpoint(tmp_path / "checkpoint"))


@pytest.fixture
def spec(tmp_path: Path) -> ServeSpec:
    return ServeSpec(python=str(write_interpreter(tmp_path)), startup_timeout_s=600)


# --- a service that works


def test_the_engine_gets_a_temporary_folder_of_its_own_and_it_is_removed(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_CACHE_ROOT")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
        environment = get(endpoint, "/environment")
        assert Path(environment["TMPDIR"]).is_dir()
        assert len(environment["TMPDIR"]) < 40, "Unix sockets in it have 107 characters at most"
        assert environment["VLLM_CACHE_ROOT"] == str(tmp_path / "checkpoint-tracker/vllm")
    engine.close()
    assert not Path(environment["TMPDIR"]).exists()
    assert Path(endpoint.info.log).is_file()


def test_the_version_is_the_servers_own(engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec) -> None:
    with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
        assert (endpoint.info.name, endpoint.info.version) == ("vllm", "0.0.stand-in")
        assert endpoint.tokenizer == checkpoint.uri


def test_a_port_that_was_asked_for_is_used_and_free_again_afterwards(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
        port = port_of(endpoint)
    for _ in range(2):
        with engine.serving(checkpoint, replace(spec, port=port), progress=nothing_to_show) as endpoint:
            assert port_of(endpoint) == port


def test_an_adapter_is_asked_for_by_its_own_name_and_not_by_its_bases(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, tmp_path: Path
) -> None:
    adapter = write_lora(Path(checkpoint.uri), tmp_path / "adapter", rank=4)
    record = checkpoint_record(adapter, base=Path(checkpoint.uri))
    with engine.serving(record, spec, progress=nothing_to_show) as endpoint:
        base_name = endpoint.model.rpartition("-")[0]
        assert [entry["id"] for entry in get(endpoint, "/v1/models")["data"]] == [base_name, endpoint.model]
        assert endpoint.tokenizer == checkpoint.uri


def test_processes_that_ignore_sigterm_are_stopped_too(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    family = replace(spec, args=("--stand-in", "family"))
    with engine.serving(checkpoint, family, progress=nothing_to_show) as endpoint:
        assert len(writers(endpoint.info.log)) == 2
    engine.close()
    assert writers(endpoint.info.log) == []


def test_an_engine_that_ends_while_it_serves_is_reported_with_its_log(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def serve_and_die() -> None:
        with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
            with pytest.raises(OSError, match="closed connection"):
                get(endpoint, "/die")
            wait_for_end(record_of(work_dir))

    with caplog.at_level(logging.WARNING), pytest.raises(ServerDied, match="exit code 3") as error:
        serve_and_die()
    assert_names_the_log(error.value, work_dir)
    assert error.value.message in caplog.text


# --- a service that cannot work


def test_a_taken_port_is_named_and_nothing_is_started(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        error = failure(engine, checkpoint, replace(spec, port=port))
    assert isinstance(error, PortTaken)
    assert str(port) in error.message
    assert not list(work_dir.glob("engines/*.log"))


def test_a_port_that_is_lost_while_the_engine_starts_is_not_called_a_crash(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "lose-the-port")))
    assert isinstance(error, PortTaken)
    assert_names_the_log(error, work_dir)


def test_a_server_that_exits_while_starting_is_reported_with_cause_and_log(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "die")))
    assert isinstance(error, ServerDied)
    assert ROOT_CAUSE in error.message
    assert checkpoint.uri in error.message
    assert_names_the_log(error, work_dir)


def test_a_server_that_is_killed_while_starting_points_at_the_memory(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "crash")))
    assert isinstance(error, ServerKilled)
    assert error.retryable
    assert "killed by SIGKILL" in error.message
    assert "memory" in error.hint


def test_arguments_that_make_no_sense_are_answered_with_the_engines_own_words(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--nonsense", "3")))
    assert "error: unrecognized arguments: --nonsense 3" in error.message
    assert "settings in [serve]" in error.hint


def test_a_server_that_answers_as_another_model_is_not_believed(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "other-model")))
    assert isinstance(error, WrongModel)
    assert "models: somebody-elses-model (expected engine-" in error.message
    assert_names_the_log(error, work_dir)


def test_a_server_that_speaks_another_protocol_is_not_believed(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "not-http")))
    assert isinstance(error, WrongModel)
    assert "not HTTP" in error.message


def test_a_server_that_never_answers_is_stopped_after_the_timeout(
    checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    engine = VllmEngine(work_dir, LeapingClock(work_dir, "Loading weights"))
    error = failure(engine, checkpoint, replace(spec, args=("--stand-in", "hang")))
    assert isinstance(error, StartTimeout)
    assert "not ready after 600 s; last log line: Loading weights took a while" in error.message
    assert_names_the_log(error, work_dir)
    assert writers(*work_dir.glob("engines/*.log")) == []


def test_an_interrupt_while_the_engine_starts_leaves_no_process(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    hanging = replace(spec, args=("--stand-in", "hang"))
    with pytest.raises(KeyboardInterrupt), engine.serving(checkpoint, hanging, progress=interrupt):
        pytest.fail("it must not be served")
    assert writers(*work_dir.glob("engines/*.log")) == []


def test_an_interpreter_without_vllm_is_reported_with_the_install_command(
    engine: VllmEngine, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    error = failure(engine, checkpoint, ServeSpec(python=str(write_interpreter_without_vllm(tmp_path))))
    assert isinstance(error, ServerDied)
    assert "No module named 'vllm'" in error.message
    assert "serve.python" in error.hint


def test_an_interpreter_that_does_not_exist_is_a_wrong_setting(
    engine: VllmEngine, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("this is no program")
    for python in ("/no/such/python", "no-such-python", str(tmp_path), str(text)):
        error = failure(engine, checkpoint, ServeSpec(python=python))
        assert isinstance(error, ConfigError)
        assert python in error.message


def test_an_interpreter_that_is_not_executable_is_a_settings_error(
    engine: VllmEngine, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    (text := tmp_path / "text").write_text("\x7fELF but not really")
    text.chmod(0o755)
    error = failure(engine, checkpoint, ServeSpec(python=str(text)))
    assert isinstance(error, ConfigError)
    assert "serve.python" in error.hint


def test_a_checkpoint_that_is_gone_is_noticed_before_anything_starts(
    engine: VllmEngine, spec: ServeSpec, tmp_path: Path
) -> None:
    error = failure(engine, checkpoint_record(tmp_path / "gone"), spec)
    assert isinstance(error, CheckpointNotFound)
    assert str(tmp_path / "gone") in error.message


def test_an_adapter_whose_base_is_gone_names_the_base(engine: VllmEngine, spec: ServeSpec, tmp_path: Path) -> None:
    adapter = write_lora(tmp_path / "base", tmp_path / "adapter")
    error = failure(engine, checkpoint_record(adapter, base=tmp_path / "base"), spec)
    assert isinstance(error, CheckpointNotFound)
    assert str(tmp_path / "base") in error.message


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_adapter_with_a_broken_config_is_unreadable(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, tmp_path: Path, content: str
) -> None:
    adapter = write_lora(Path(checkpoint.uri), tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text(content)
    error = failure(engine, checkpoint_record(adapter, base=Path(checkpoint.uri)), spec)
    assert isinstance(error, CheckpointUnreadable)
    assert "adapter_config.json" in error.message


def test_a_work_folder_that_cannot_be_written_is_named(checkpoint: Checkpoint, spec: ServeSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    error = failure(VllmEngine(tmp_path / "file", CLOCK), checkpoint, spec)
    assert isinstance(error, ServeError)
    assert str(tmp_path / "file") in error.message


def test_a_full_disk_during_startup_is_reported_as_full(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=str(tmp_path)), mapped_os_errors(tmp_path):
        raise OSError(ENOSPC, "No space left on device")


# --- leftovers of a worker that was killed


@pytest.mark.parametrize("mode", ["family", "hang"])
def test_a_killed_worker_leaves_no_process_after_the_next_start(
    mode: str, work_dir: Path, checkpoint: Checkpoint, spec: ServeSpec, engine: VllmEngine
) -> None:
    with start_worker(str(work_dir), checkpoint.uri, "--python", spec.python, "--args", "--stand-in", mode) as worker:
        wait_for_line(worker, "serving" if mode == "family" else "starting")
        worker.kill()
    (left,) = work_dir.glob("engines/*.log")
    tmp_dir = Path(record_of(work_dir).tmp_dir)
    assert writers(left)
    with engine.serving(checkpoint, spec, progress=nothing_to_show):
        assert writers(left) == []
    assert not tmp_dir.exists()


def test_children_are_found_when_worker_and_server_are_both_dead(
    work_dir: Path, checkpoint: Checkpoint, spec: ServeSpec
) -> None:
    with start_worker(
        str(work_dir), checkpoint.uri, "--python", spec.python, "--args", "--stand-in", "family"
    ) as worker:
        wait_for_line(worker, "serving")
        worker.kill()
    record = record_of(work_dir)
    os.kill(record.pid, signal.SIGKILL)
    assert reap(work_dir / "engines", CLOCK) == (Path(record.log).stem,)
    assert writers(record.log) == []


def test_the_engine_of_a_running_worker_is_not_ended(
    engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec, work_dir: Path
) -> None:
    with engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
        assert reap(work_dir / "engines", CLOCK) == ()
        assert get(endpoint, "/v1/models")["data"]


def test_a_process_that_only_has_the_same_pid_is_not_ended(work_dir: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as stranger:
        started = proc.stat(stranger.pid)
        assert started is not None
        pid_file = write_record(work_dir, pid=stranger.pid, start_time=started.start_time - 1)
        assert reap(work_dir / "engines", CLOCK) == ("left",)
        assert stranger.poll() is None
        assert not pid_file.exists()
        stranger.kill()


def test_pid_files_of_other_machines_and_invalid_ones_are_ignored(work_dir: Path) -> None:
    pid_file = write_record(work_dir, pid=1, start_time=0, machine="elsewhere")
    broken = pid_file.with_name("broken.pid")
    broken.write_text("{")
    assert reap(work_dir / "engines", CLOCK) == ()
    assert pid_file.exists()
    assert broken.exists()


def test_where_nothing_ever_ran_there_is_nothing_to_reap(work_dir: Path) -> None:
    assert reap(work_dir / "engines", CLOCK) == ()


# --- private


def failure(engine: VllmEngine, checkpoint: Checkpoint, spec: ServeSpec) -> TrackerError:
    with pytest.raises(TrackerError) as caught, engine.serving(checkpoint, spec, progress=nothing_to_show):
        pytest.fail("it must not be served")
    return caught.value


def assert_names_the_log(error: TrackerError, work_dir: Path) -> None:
    (log,) = work_dir.glob("engines/*.log")
    assert str(log) in error.hint


def get(endpoint: Endpoint, path: str) -> Any:
    url = endpoint.base_url.removesuffix("/v1") + path
    with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310
        return json.load(answer)


def port_of(endpoint: Endpoint) -> int:
    return int(endpoint.base_url.removesuffix("/v1").rpartition(":")[2])


def write_record(work_dir: Path, *, pid: int, start_time: int, machine: str = "") -> Path:
    """Write what a worker that is gone left behind."""
    pid_file = work_dir / "engines" / "left.pid"
    pid_file.parent.mkdir(parents=True)
    record = EngineRecord(
        machine=machine or proc.this_machine(),
        owner_pid=os.getpid(),
        owner_start_time=1,
        log=str(pid_file.with_suffix(".log")),
        tmp_dir=str(work_dir / "tmp"),
        pid=pid,
        start_time=start_time,
    )
    pid_file.write_text(json.dumps(asdict(record)))
    return pid_file
