"""vLLM without something that later or earlier versions have. On the stand-in; see test_warm_engine.py."""

from pathlib import Path

from tests.fakes.vllm_stand_in import write_interpreter_of_a_newer_vllm
from tests.warm_engines import Bench, bench, work_dir

__all__ = ["bench", "work_dir"]


def test_an_engine_without_weight_labels_is_started_cold_before_its_weights_are_touched(
    bench: Bench, work_dir: Path
) -> None:
    infos = [bench.serve(bench.full(seed), args=("--stand-in", "no-label")) for seed in (1, 2, 3, 4)]
    assert [info.load_method for info in infos] == ["cold"] * 4
    assert {info.load_reason for info in infos[1:]} == {
        "weights not swapped: this engine cannot label its weights (HTTP 404), as vLLM before 0.27"
    }
    assert not list(work_dir.glob("certificates/*"))


def test_a_vllm_without_the_older_launcher_is_started_by_the_newer_one(
    bench: Bench, tmp_path: Path, work_dir: Path
) -> None:
    python = str(write_interpreter_of_a_newer_vllm(tmp_path))
    for starts in (2, 3):
        assert bench.serve(bench.full(1), python=python).version == "0.0.stand-in"
        assert len(list(work_dir.glob("engines/*.log"))) == starts, "once found, it is started at once"
        bench.engine.close()
