"""Sleep between checkpoints, where the platform has it. No GPU: the device is a file, the server the stand-in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.serve.resident import order
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Between, ServeSpec, SwapPolicy
from tests.fakes.vllm_stand_in import write_interpreter
from tests.integration.left_behind import writers
from tests.warm_engines import Bench, HastyClock


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    device = tmp_path / "nvidiactl"
    device.touch()
    monkeypatch.setattr(order, "ACCELERATORS", (str(device),))
    engine = VllmEngine(tmp_path / "work", HastyClock())
    spec = ServeSpec(python=str(write_interpreter(tmp_path)), between=Between.SLEEP)
    yield Bench(engine=engine, spec=spec, folder=tmp_path)
    engine.close()


def calls(bench: Bench) -> list[str]:
    """Return what the stand-in was asked to do, without canaries and signs of life."""
    return [call for call in bench.get("/state")["calls"] if call != "/v1/completions"]


def test_a_full_checkpoint_sleeps_without_its_weights_and_the_next_is_swapped_in_between_the_halves_of_the_waking(
    bench: Bench,
) -> None:
    bench.serve_all(bench.full(1), bench.full(2), bench.full(3))
    bench.engine.rest()
    assert bench.get("/state")["asleep"] == ["kv_cache", "weights"]
    certifying = bench.serve(bench.full(4))
    assert "now certified" in certifying.load_reason, "a swap after a sleep is another kind"
    bench.engine.rest()
    swapped = bench.serve(bench.full(5))
    assert swapped.load_method == "swap"
    assert calls(bench) == [
        "/sleep?level=2&mode=wait",
        "/wake_up?tags=weights",
        "/update_weight_version",  # can it label weights? Asked before they are touched
        *("/collective_rpc", "/pause?mode=wait", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version"),
        "/resume",
        "/wake_up?tags=kv_cache",
    ]
    assert bench.get("/state")["asleep"] == []


def test_the_same_checkpoint_after_a_sleep_without_weights_is_swapped_in_again(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    bench.engine.rest()
    bench.serve(bench.full(3))
    bench.engine.rest()
    cold = bench.serve(bench.full(4))
    bench.engine.rest()
    again = bench.serve(bench.full(4))
    assert (again.load_method, again.canaries) == ("swap", cold.canaries)


def test_an_engine_with_adapters_keeps_its_base_while_it_sleeps(bench: Bench) -> None:
    first = bench.serve(bench.adapter(1))
    bench.engine.rest()
    again = bench.serve(bench.adapter(1))
    assert again.load_reason == "already loaded"
    assert again.canaries == first.canaries
    assert calls(bench) == [
        "/sleep?level=1&mode=wait",
        "/wake_up",
        "/pause?mode=wait",
        "/reset_prefix_cache",
        "/resume",
    ]
    bench.engine.rest()
    bench.serve(bench.adapter(2))
    bench.engine.rest()
    assert bench.serve(bench.adapter(3)).load_method == "adapter"


def test_an_engine_that_cannot_be_swapped_into_ends_instead_of_sleeping(bench: Bench) -> None:
    quantised = bench.full(1, config={"quantization_config": {"quant_method": "fp8"}})
    infos = [bench.serve(quantised), bench.serve(bench.full(2), swap=SwapPolicy.NEVER)]
    bench.engine.rest()
    assert writers(infos[1].log) == []
    bench.serve(quantised)
    bench.engine.rest()
    assert writers(*(endpoint.info.log for endpoint in bench.endpoints)) == []


def test_an_engine_that_does_not_fall_asleep_is_stopped(bench: Bench) -> None:
    info = bench.serve(bench.full(1), args=("--stand-in", "sleepless"))
    bench.engine.rest()
    assert writers(info.log) == []
    assert bench.serve(bench.full(1)).load_reason == "no engine was running"


def test_an_engine_that_does_not_wake_up_is_replaced(bench: Bench) -> None:
    bench.serve(bench.full(1))
    bench.engine.rest()
    bench.set_mode("sleeps-on")
    info = bench.serve(bench.full(2))
    assert info.load_method == "cold"
    assert "cannot wake the engine" in info.load_reason


def test_an_engine_that_sleeps_is_not_asked_to_sleep_again(bench: Bench) -> None:
    bench.serve(bench.full(1))
    for _ in range(3):
        bench.engine.rest()
    assert calls(bench) == ["/sleep?level=2&mode=wait"]


def test_with_between_stay_nothing_sleeps_and_the_engine_is_not_started_for_it(bench: Bench) -> None:
    bench.serve(bench.full(1), between=Between.STAY)
    bench.engine.rest()
    assert calls(bench) == []
    assert "sleep mode is True" in bench.serve(bench.full(2)).load_reason
