"""What a certificate of swaps does not hold for. On the stand-in for vLLM; see test_warm_engine.py."""

from pathlib import Path

import pytest

from eval_jobs.serve.process.readiness import UNKNOWN_VERSION
from tests.warm_engines import Bench, bench, work_dir

__all__ = ["bench", "work_dir"]


@pytest.mark.parametrize("args", [("--kv-transfer-config", "{}"), ("--kv_offloading_size=8",)])
def test_where_computed_prompts_are_kept_outside_of_the_engine_every_checkpoint_is_a_new_start(
    bench: Bench, args: tuple[str, ...]
) -> None:
    """Emptying the engine's cache leaves them, and the next weights would answer from those of the last ones."""
    infos = [bench.serve(bench.full(seed), args=args) for seed in (1, 2, 2)]
    assert [info.load_method for info in infos] == ["cold", "cold", "cold"]
    assert infos[1].load_reason.startswith("serve.args enables an external KV cache")


def test_a_certificate_holds_for_no_other_configuration_of_equal_tensors(bench: Bench) -> None:
    bench.serve_all(bench.full(1), bench.full(2))
    other = {"rope_theta": 500_000.0}
    infos = [bench.serve(bench.full(seed, config=other)) for seed in (3, 4, 5)]
    assert [info.load_method for info in infos] == ["cold", "cold", "swap"]
    assert "now certified" in infos[1].load_reason


def test_an_engine_that_does_not_name_its_version_is_certified_for_nothing(bench: Bench, work_dir: Path) -> None:
    infos = [bench.serve(bench.full(seed), args=("--stand-in", "no-version")) for seed in (1, 2, 2)]
    assert infos[0].version == UNKNOWN_VERSION
    assert infos[1].load_reason.startswith("the engine reports no version")
    assert infos[2].load_reason == "already loaded"
    assert not list(work_dir.glob("certificates/*"))
