"""How checkpoints get into an engine that stays: swapped where that is certified, by a cold start in any doubt.

On the stand-in for vLLM, whose answers depend on the weights that it really holds. The real one: test_warm_vllm.py.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointNotFound, CheckpointUnreadable
from eval_jobs.serve.process import control
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.resident import cold
from eval_jobs.serve.resident import loaded as resident
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Between, ServeSpec, SwapPolicy
from tests.fakes.vllm_stand_in import write_interpreter
from tests.integration.left_behind import record_of, wait_for_end, writers
from tests.tiny_model import write_checkpoint
from tests.warm_engines import Bench, HastyClock


class SettableClock(HastyClock):
    """Can be told that much time has passed."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def bench(tmp_path: Path, work_dir: Path, clock: SettableClock) -> Iterator[Bench]:
    engine = VllmEngine(work_dir, clock)
    yield Bench(engine=engine, spec=ServeSpec(python=str(write_interpreter(tmp_path))), folder=tmp_path)
    engine.close()
    assert not list(work_dir.glob("engines/*.pid"))


def engines_started(work_dir: Path) -> int:
    return len(list(work_dir.glob("engines/*.log")))


# --- swaps and their certificate


def test_the_second_checkpoint_certifies_by_a_cold_start_and_from_then_on_weights_are_swapped(
    bench: Bench, work_dir: Path
) -> None:
    first, second, third = (bench.serve(bench.full(seed)) for seed in (1, 2, 3))
    assert [info.load_method for info in (first, second, third)] == ["cold", "cold", "swap"]
    assert first.load_reason == "no engine was running"
    assert "not certified yet; bit-identical to a cold start, now certified" in second.load_reason
    assert third.certificate
    assert third.certificate in third.load_reason
    assert (first.certificate, second.certificate) == ("", "")
    assert engines_started(work_dir) == 2
    assert third.log == second.log


def test_a_swapped_checkpoint_answers_the_canaries_as_a_cold_one(bench: Bench) -> None:
    cold = [bench.serve(bench.full(seed), swap=SwapPolicy.NEVER) for seed in (1, 2, 3)]
    swapped = [bench.serve(bench.full(seed)) for seed in (3, 2, 1)]
    assert [info.load_method for info in swapped] == ["cold", "cold", "swap"]
    assert [info.canaries for info in swapped] == [info.canaries for info in reversed(cold)]
    assert len({info.canaries for info in cold}) == 3
    assert all(info.canaries for info in cold)


def test_a_certificate_holds_for_later_workers(bench: Bench, work_dir: Path) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    bench.engine.close()
    bench.engine = VllmEngine(work_dir, HastyClock())
    assert bench.serve_all(bench.full(3), bench.full(4)) == ["cold", "swap"]
    bench.engine.close()


def test_a_swap_that_changes_nothing_is_found_out_and_never_tried_again(bench: Bench, work_dir: Path) -> None:
    args = ("--stand-in", "swap-changes-nothing")
    _, second, third = (bench.serve(bench.full(seed), args=args) for seed in (1, 2, 3))
    assert second.load_method == "cold"
    assert "differs from a cold start, now refused" in second.load_reason
    assert "output 1: token" in second.load_reason
    assert third.load_reason.startswith("swaps of this kind are refused")
    (kept,) = work_dir.glob("certificates/*.refusal.json")
    assert json.loads(kept.read_text())["proof"]["differed"]
    kept.unlink()
    assert "not certified yet" in bench.serve(bench.full(4), args=args).load_reason


def test_what_is_swapped_back_must_answer_as_before_or_the_certificate_is_worth_nothing(bench: Bench) -> None:
    assert bench.serve_all(bench.full(1), bench.full(2), bench.full(3)) == ["cold", "cold", "swap"]
    bench.set_mode("swap-changes-nothing")
    back = bench.serve(bench.full(2))
    assert back.load_method == "cold"
    assert "outputs differ from those of its previous load" in back.load_reason
    assert "differs from a cold start, now refused" in back.load_reason
    assert "refused" in bench.serve(bench.full(1)).load_reason


def test_weights_that_answer_as_those_before_prove_nothing(bench: Bench, work_dir: Path) -> None:
    """Training whose first steps change next to nothing: a swap that does nothing would look right."""
    alike = ("--stand-in", "alike")
    infos = [bench.serve(bench.full(seed), args=alike) for seed in (1, 2, 3)]
    assert [info.load_method for info in infos] == ["cold", "cold", "cold"]
    assert "not compared: the previous weights give the same outputs" in infos[1].load_reason
    assert not list(work_dir.glob("certificates/*"))


def test_a_checkpoint_that_answers_nan_is_served_and_proves_nothing(bench: Bench, work_dir: Path) -> None:
    infos = [bench.serve(bench.full(seed), args=("--stand-in", "nan")) for seed in (1, 2)]
    assert [info.load_method for info in infos] == ["cold", "cold"]
    # What NaN left in the engine's cache outlives a swap.
    assert infos[1].load_reason == "the last checkpoint failed on the fixed prompts"
    assert not list(work_dir.glob("certificates/*"))


def test_a_swap_that_turns_sound_weights_into_nan_is_refused_from_then_on(bench: Bench) -> None:
    bench.serve(bench.full(1))
    bench.set_mode("nan")
    assert "differs from a cold start, now refused" in bench.serve(bench.full(2)).load_reason


@pytest.mark.parametrize("content", ["", "{", '{"kind": 1}', "null", "\udcff"])
def test_a_torn_certificate_counts_as_none(bench: Bench, work_dir: Path, content: str) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    (kept,) = work_dir.glob("certificates/*.certificate.json")
    kept.write_bytes(content.encode(errors="surrogateescape"))
    assert "not certified yet" in bench.serve(bench.full(3)).load_reason
    assert bench.serve(bench.full(4)).load_method == "swap"


def test_workers_that_certify_at_the_same_time_do_not_disturb_one_another(bench: Bench, work_dir: Path) -> None:
    others = [replace(bench, engine=VllmEngine(work_dir, HastyClock()), endpoints=[]) for _ in range(3)]
    checkpoints = [bench.full(seed) for seed in (1, 2, 3)]
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda b=b: found.append(b.serve_all(*checkpoints))) for b in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.engine.close()
    assert len(found) == 3
    assert all(methods[2] == "swap" for methods in found)
    assert len(list(work_dir.glob("certificates/*"))) == 1


def test_with_swap_never_every_checkpoint_is_a_new_start_and_the_routes_for_swaps_stay_closed(bench: Bench) -> None:
    infos = [bench.serve(bench.full(seed), swap=SwapPolicy.NEVER) for seed in (1, 2, 2)]
    assert [info.load_method for info in infos] == ["cold", "cold", "cold"]
    assert {info.load_reason for info in infos[1:]} == {'serve.swap = "never"'}
    assert len({info.log for info in infos}) == 3
    assert "VLLM_SERVER_DEV_MODE" not in bench.get("/environment")


def test_the_same_checkpoint_needs_nothing(bench: Bench, work_dir: Path) -> None:
    first, again = bench.serve(bench.full(1)), bench.serve(bench.full(1))
    assert again.load_reason == "already loaded"
    assert again.canaries == first.canaries
    assert again.load_method == "cold"
    assert engines_started(work_dir) == 1
    assert "/reset_prefix_cache" in bench.get("/state")["calls"], "a start leaves no prompts behind either"


def test_an_engine_that_does_not_forget_its_prompts_is_replaced(bench: Bench) -> None:
    bench.serve(bench.full(1))
    bench.set_mode("remembers")
    assert "cannot reset the engine's prefix cache" in bench.serve(bench.full(1)).load_reason


# --- what fits no engine that runs


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dtype": "bfloat16"}, "serve.dtype is bfloat16, but the engine was started with auto"),
        ({"max_model_len": 64}, "serve.max_model_len is 64"),
        ({"args": ("--stand-in", "serve")}, "serve.args is"),
        ({"trust_remote_code": True}, "serve.trust_remote_code is True"),
        ({"niceness": 1}, "serve.niceness is 1"),
    ],
)
def test_other_settings_are_another_process(bench: Bench, settings: dict[str, object], words: str) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    info = bench.serve(bench.full(3), **settings)
    assert info.load_method == "cold"
    assert words in info.load_reason


@pytest.mark.parametrize("args", [("--data-parallel-size", "2"), ("-dp=2",), ("--api_server_count", "2")])
def test_where_several_engines_answer_at_one_port_every_checkpoint_is_a_new_start(
    bench: Bench, args: tuple[str, ...]
) -> None:
    infos = [bench.serve(bench.full(seed), args=args) for seed in (1, 2)]
    assert infos[1].load_reason == "serve.args runs several engines behind one port"


def test_how_patient_or_idle_an_engine_is_makes_no_other_process(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    settings = {"startup_timeout_s": 1200.0, "idle_timeout_s": 900.0, "between": Between.STOP}
    assert bench.serve(bench.full(3), **settings).load_method == "swap"


def test_another_environment_is_another_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
    assert "the environment changed" in bench.serve(bench.full(3)).load_reason


def test_another_port_is_another_process(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    number = int(bench.endpoints[-1].base_url.removesuffix("/v1").rpartition(":")[2])
    assert bench.serve(bench.full(3), port=number).load_method == "swap"
    assert "serve.port is" in bench.serve(bench.full(1), port=number + 1).load_reason


def test_what_an_engine_reads_at_its_start_only_must_be_equal(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    info = bench.serve(bench.full(3, config={"rms_norm_eps": 1e-5}))
    assert (info.load_method, info.load_reason) == ("cold", "config.json differs")


def test_quantised_weights_are_never_swapped(bench: Bench) -> None:
    quantised = {"quantization_config": {"quant_method": "compressed-tensors"}}
    bench.serve(bench.full(1, config=quantised))
    info = bench.serve(bench.full(2, config=quantised))
    assert info.load_reason == "its weights cannot be swapped: it is quantized (compressed-tensors)"


def test_weights_that_changed_since_they_were_pinned_are_not_served_as_that_checkpoint(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    changed = bench.full(3)
    write_checkpoint(Path(changed.uri), seed=4)
    with pytest.raises(CheckpointUnreadable, match="changed after the checkpoint was found"):
        bench.serve(changed)
    assert bench.serve(bench.full(1)).load_method == "cold"


def test_a_checkpoint_that_is_gone_leaves_the_engine_as_it_is(bench: Bench, work_dir: Path) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    with pytest.raises(CheckpointNotFound):
        bench.serve(replace(bench.full(3), uri=str(work_dir / "gone")))
    assert bench.serve(bench.full(3)).load_method == "swap"


# --- engines that break


def test_an_engine_that_died_while_it_was_idle_is_replaced(bench: Bench, work_dir: Path) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    record = record_of(work_dir)
    os.kill(record.pid, signal.SIGKILL)
    wait_for_end(record)
    info = bench.serve(bench.full(3))
    assert info.load_method == "cold"
    assert info.load_reason == "the engine exited unexpectedly (killed by SIGKILL)"


def test_an_engine_that_froze_while_it_was_idle_is_replaced(
    bench: Bench, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.5)  # a new engine that is not there in time is asked again
    monkeypatch.setattr(cold, "SICK_STOP_GRACE_S", 0.2)
    monkeypatch.setattr(process, "GROUP_GRACE_S", 0.2)
    frozen = bench.endpoints[-1].info.log
    os.kill(record_of(work_dir).pid, signal.SIGSTOP)
    info = bench.serve(bench.full(3))
    assert (info.load_method, info.load_reason) == ("cold", "the engine stopped responding")
    assert writers(frozen) == []


def test_an_engine_whose_core_is_stuck_is_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    monkeypatch.setattr(resident, "LIFE_SIGN_TIMEOUT_S", 0.5)
    bench.set_mode("stuck")
    info = bench.serve(bench.full(3))
    assert info.load_reason.startswith("the engine failed its health check (no response within 0.5 s")


def test_an_engine_that_answers_under_another_model_name_is_replaced(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    bench.set_mode("other-model")
    assert bench.serve(bench.full(3)).load_reason == "another server responded on the engine's port"


def test_an_engine_whose_weights_changed_behind_our_back_is_replaced(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    bench.set_mode("scrambled")
    info = bench.serve(bench.full(2))
    assert info.load_method == "cold"
    assert "outputs differ from those of its previous load" in info.load_reason


@pytest.mark.parametrize("mode", ["swap-fails", "swap-dies"])
def test_a_swap_that_fails_is_followed_by_a_cold_start_and_not_tried_for_ever(
    bench: Bench, work_dir: Path, mode: str
) -> None:
    infos = [bench.serve(bench.full(seed), args=("--stand-in", mode)) for seed in (1, 2, 3, 4)]
    assert {info.load_method for info in infos} == {"cold"}
    assert "the engine failed to " in infos[1].load_reason
    assert infos[3].load_reason == "swaps of this kind failed 2 times in this worker"
    assert not list(work_dir.glob("certificates/*")), "an engine that dies says nothing of what swaps change"


def test_an_interrupt_in_the_middle_of_a_swap_leaves_no_engine(bench: Bench, work_dir: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    bench.serve_all(bench.full(1), bench.full(2))
    with (
        pytest.raises(KeyboardInterrupt, match="into the running engine"),
        bench.engine.serving(bench.full(3), bench.spec, progress=interrupt),
    ):
        pytest.fail("it must not be served")
    assert writers(*work_dir.glob("engines/*.log")) == []
    assert bench.serve(bench.full(3)).load_reason == "no engine was running"


# --- nothing to do


def test_an_idle_engine_is_stopped_after_its_time_and_not_before(bench: Bench, clock: SettableClock) -> None:
    info = bench.serve(bench.full(1), idle_timeout_s=100_000.0)
    bench.engine.rest()
    clock.passed_s = 90_000.0
    bench.engine.rest()
    assert writers(info.log)
    clock.passed_s = 100_001.0
    bench.engine.rest()
    assert writers(info.log) == []
    bench.engine.rest()
    assert bench.serve(bench.full(1)).load_reason == "no engine was running"


def test_with_between_stop_the_engine_ends_when_nothing_waits(bench: Bench) -> None:
    infos = [bench.serve(bench.full(seed), between=Between.STOP) for seed in (1, 2)]
    assert writers(infos[1].log), "the next checkpoint was waiting"
    bench.engine.rest()
    assert writers(infos[1].log) == []


def test_sleep_on_a_cpu_has_no_effect_and_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    info = bench.serve(bench.full(1), between=Between.SLEEP)
    bench.engine.rest()
    assert writers(info.log)
    assert set(bench.get("/state")["calls"]) == {"/v1/completions"}
    assert 'serve.between = "sleep" has no effect on a CPU' in caplog.text


def test_an_engine_that_died_while_nothing_waited_is_cleared_away(bench: Bench, work_dir: Path) -> None:
    bench.serve(bench.full(1))
    record = record_of(work_dir)
    os.kill(record.pid, signal.SIGKILL)
    wait_for_end(record)
    bench.engine.rest()
    assert not list(work_dir.glob("engines/*.pid"))
