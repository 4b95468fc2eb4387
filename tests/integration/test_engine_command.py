"""`tracker engine status` beside an engine that runs, on the stand-in for vLLM."""

import json
from pathlib import Path

from click.testing import CliRunner

from tests.fakes.serving_worker import start_worker, wait_for_line
from tests.warm_engines import Bench, bench, work_dir

__all__ = ["bench", "work_dir"]
from tracker.cli.commands.to_operate.engine import NOTHING_PROVED, NOTHING_RUNS, command


def shown(work_dir: Path, *options: str) -> str:
    result = CliRunner().invoke(command, ["status", "--work-dir", str(work_dir), *options], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_nothing_is_said_to_be_there_where_nothing_ever_ran(work_dir: Path) -> None:
    assert shown(work_dir).splitlines() == [NOTHING_RUNS, NOTHING_PROVED]
    assert json.loads(shown(work_dir, "--json"))["result"] == {"engines": [], "proofs": []}


def test_what_an_engine_holds_and_what_is_certified_is_shown(bench: Bench, work_dir: Path) -> None:
    info = [bench.serve(bench.full(seed)) for seed in (1, 2, 3)][-1]
    text = shown(work_dir)
    assert "tiny step 300" in text
    assert "idle" in text
    assert "certified" in text
    found = json.loads(shown(work_dir, "--json"))["result"]
    (engine,), (kept,) = found["engines"], found["proofs"]
    assert (engine["load_method"], engine["certificate"]) == ("swap", info.certificate)
    assert engine["checkpoints"] == ["tiny step 300"]
    assert engine["log"] == info.log
    assert kept["proof"]["kind"]["architecture"] == "LlamaForCausalLM"
    assert Path(kept["file"]).is_file()


def test_a_refusal_is_shown_with_what_differed_and_the_file_to_delete(bench: Bench, work_dir: Path) -> None:
    bench.serve_all(bench.full(1), bench.full(2), args=("--stand-in", "swap-changes-nothing"))
    text = shown(work_dir)
    assert text.splitlines()[-6].startswith("refused")
    assert "output 1: token 1 is " in text
    assert ".refusal.json" in text


def test_adapters_are_shown_newest_first(bench: Bench, work_dir: Path) -> None:
    bench.serve_all(*(bench.adapter(seed) for seed in (1, 2, 3)))
    assert "tiny step 300, tiny step 200" in shown(work_dir)


def test_a_checkpoint_that_is_served_now_is_said_to_be(bench: Bench, work_dir: Path) -> None:
    with bench.engine.serving(bench.full(1), bench.spec, progress=lambda _: None):
        assert "serving" in shown(work_dir)
    bench.engine.close()
    assert NOTHING_RUNS in shown(work_dir)


def test_an_engine_that_its_worker_left_behind_is_said_to_be(bench: Bench, work_dir: Path) -> None:
    with start_worker(str(work_dir), bench.full(1).uri, "--python", bench.spec.python) as worker:
        wait_for_line(worker, "serving")
        worker.kill()
    assert "leftover" in shown(work_dir)
    bench.serve(bench.full(2))
    assert "leftover" not in shown(work_dir)
