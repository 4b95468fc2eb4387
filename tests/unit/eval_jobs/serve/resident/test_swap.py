"""The order of a swap, and what is refused and what has failed, against an engine that errs at every step."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import ServeError, SwapFailed, SwapRefused
from eval_jobs.serve.process.control import KEY, KEY_VARIABLE
from eval_jobs.serve.resident.swap import extension_args, extension_environment, swap
from eval_jobs.serve.weights.fingerprint import Fingerprint, fingerprint_of
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import layout_digest
from tests.fakes.swap_engine import Said, SwapEngine
from tests.swap_servers import record_of
from tests.tiny_model import write_checkpoint

LABEL = ["/weight_info", "/update_weight_version"]
STEPS = [
    *(*LABEL, "tracker_check", "/pause?mode=wait", "tracker_load", "/reset_prefix_cache", "/update_weight_version"),
    *("/weight_info", "/resume"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "next", seed=1)


def swapped(engine: SwapEngine, folder: Path, *, timeout_s: float = 60.0) -> Fingerprint:
    return swap(engine.port, record_of(folder), fingerprint_of(folder), timeout_s=timeout_s)


def test_a_swap_asks_every_step_in_order_and_is_proved_by_the_digest(folder: Path) -> None:
    with SwapEngine() as engine:
        result = swapped(engine, folder)
    assert engine.asked == STEPS
    checkpoint, fingerprint = record_of(folder), fingerprint_of(folder)
    assert engine.checked == [[str(folder), checkpoint.digest, layout_digest(fingerprint.tensors)]]
    assert engine.label == checkpoint.digest
    assert result == fingerprint


def test_what_does_not_fit_is_refused_before_the_engine_is_asked_anything(folder: Path, tmp_path: Path) -> None:
    resident = replace(fingerprint_of(folder), files={"config.json": "another"})
    with SwapEngine() as engine, pytest.raises(SwapRefused, match=r"config\.json differs"):
        swap(engine.port, record_of(folder), resident, timeout_s=5)
    assert engine.asked == []
    gone = replace(record_of(folder), uri=str(tmp_path / "gone"))
    with SwapEngine() as engine, pytest.raises(SwapRefused, match="No such file"):
        swap(engine.port, gone, resident, timeout_s=5)
    assert engine.asked == []


REFUSED: list[tuple[str, Said, list[str], str]] = [
    ("tracker_check", (200, {"results": [{"refused": "x contains NaN or Inf"}]}), STEPS[:3], "x contains NaN or Inf"),
    ("tracker_check", (200, {"results": [{"refused": ""}, {"refused": "gone here"}]}), STEPS[:3], "gone here"),
    ("tracker_check", (404, {"detail": "Not Found"}), STEPS[:3], "without swap support"),
    ("tracker_check", (403, None), STEPS[:3], "without swap support"),
    ("/weight_info", (404, {"detail": "Not Found"}), LABEL[:1], "cannot label its weights"),
    ("/weight_info", (200, {}), LABEL[:1], "reports no weight version"),
    ("/update_weight_version", (404, {"detail": "Not Found"}), LABEL, "cannot label its weights"),
    ("/pause?mode=wait", (500, {"error": "busy"}), [*STEPS[:4], "/resume"], "did not pause"),
]


@pytest.mark.parametrize(("step", "said", "asked", "words"), REFUSED)
def test_before_anything_was_touched_a_swap_is_refused(
    step: str, said: Said, asked: list[str], words: str, folder: Path
) -> None:
    with SwapEngine({step: [said]}) as engine, pytest.raises(SwapRefused, match=words):
        swapped(engine, folder)
    assert engine.asked == asked


@pytest.mark.slow
def test_an_engine_that_does_not_come_to_rest_in_time_goes_on_and_serves_what_it_did(folder: Path) -> None:
    with (
        SwapEngine({"/pause?mode=wait": [(-1, {})]}) as engine,
        pytest.raises(SwapRefused, match="no response within 2 s"),
    ):
        swapped(engine, folder, timeout_s=2.0)
    assert engine.asked == [*STEPS[:4], "/resume"]


NO: Said = (500, {"error": {"message": "EngineDeadError"}})
YES: Said = (200, {"weight_version": "default"})
FAILED: list[tuple[dict[str, list[Said]], str]] = [
    ({"tracker_check": [NO]}, "check the weights"),
    ({"tracker_check": [(200, {"results": []})]}, "check the weights"),
    ({"tracker_check": [(200, {"results": [None]})]}, "check the weights"),
    ({"tracker_check": [(200, {"results": [{}]})]}, "check the weights"),
    ({"tracker_check": [(200, "ok")]}, "check the weights"),
    ({"tracker_check": [(0, None)]}, "check the weights"),
    ({"/pause?mode=wait": [NO], "/resume": [NO]}, "pause"),
    ({"tracker_load": [NO]}, "load the weights"),
    ({"tracker_load": [(0, None)]}, "load the weights"),
    ({"tracker_load": [(200, {"results": [{"digest": "other", "tensors": 21}]})]}, "load the requested weights"),
    ({"tracker_load": [(200, {"results": [{"tensors": 21}]})]}, "load the requested weights"),
    ({"/reset_prefix_cache": [(200, {"success": False})]}, "reset its prefix cache"),
    ({"/reset_prefix_cache": [NO]}, "reset its prefix cache"),
    ({"/weight_info": [(0, None)]}, "label its weights"),
    ({"/update_weight_version": [YES, NO]}, "set its weight version"),
    ({"/weight_info": [YES, (200, {"weight_version": "another"})]}, "report its weight version"),
    ({"/weight_info": [YES, (200, None)]}, "report its weight version"),
    ({"/resume": [NO]}, "failed to resume"),
    ({"/resume": [(0, None)]}, "failed to resume"),
]


@pytest.mark.parametrize(("says", "words"), FAILED)
def test_whatever_else_happens_the_engine_counts_as_dead(says: dict[str, list[Said]], words: str, folder: Path) -> None:
    with SwapEngine(says) as engine, pytest.raises(SwapFailed, match=words):
        swapped(engine, folder)


def test_weights_on_one_worker_of_two_are_not_enough(folder: Path) -> None:
    digest = record_of(folder).digest
    results = [{"digest": digest, "tensors": 21}, {"digest": digest, "tensors": 20}]
    with SwapEngine({"tracker_load": [(200, {"results": results})]}) as engine, pytest.raises(SwapFailed):
        swapped(engine, folder)
    assert engine.asked[-1] == "tracker_load"


def test_an_engine_that_is_gone_has_failed(folder: Path) -> None:
    with SwapEngine() as engine:
        port = engine.port
    with pytest.raises(SwapFailed, match="no response"):
        swap(port, record_of(folder), fingerprint_of(folder), timeout_s=1)


def test_both_errors_say_what_to_do_and_have_codes_of_their_own() -> None:
    assert issubclass(SwapRefused, ServeError)
    assert issubclass(SwapFailed, ServeError)
    assert (SwapRefused.code, SwapFailed.code) == ("E-SERVE-SWAP-REFUSED", "E-SERVE-SWAP-FAILED")


def test_the_engine_finds_the_extension_beside_what_is_on_its_path_already() -> None:
    arguments = extension_args()
    assert arguments[::2] == ("--worker-extension-cls", "--middleware")
    alone = extension_environment({})
    folder = Path(alone["PYTHONPATH"])
    for target in arguments[1::2]:
        package, module, name = target.split(".")
        assert f"class {name}" in (folder / package / f"{module}.py").read_text()
    joined = extension_environment({"PYTHONPATH": "/mine"})
    assert joined["PYTHONPATH"].split(os.pathsep) == [str(folder), "/mine"]
    assert (alone["VLLM_SERVER_DEV_MODE"], alone[KEY_VARIABLE]) == ("1", KEY)


def test_nothing_but_the_extension_is_put_on_the_engines_path() -> None:
    # `eval_jobs/serve` itself holds a module called vllm.
    folder = Path(extension_environment({})["PYTHONPATH"])
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"__init__.py", "tracker_worker"}
