"""What is said of a part that no package brings, several bring, or that is broken; nobody is started for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.execute.clock import SystemClock
from eval_jobs.identity import benchmark_fingerprint, serve_settings
from eval_jobs.plugins import ENGINES, Kind, find
from eval_jobs.serve.selection import EngineByKind
from eval_jobs.types import Benchmark, EngineKind, Program, ServeSpec, Suite
from tests.plugins import written
from tests.tiny_model import checkpoint_record, write_checkpoint
from tracker.config import parse_config
from tracker.wiring import Project
from tracker.wiring_checkpoints import open_source

CONFIG = """
[run]
name = "sft"
output_dir = "out"
state_dir = "."
{run}
[[benchmark]]
benchmark = "capitals"
data = "capitals.jsonl"
evaluator = "{evaluator}"
[serve]
engine = "{engine}"
[[alerts.channel]]
name = "log"
kind = "{channel}"
"""
GOOD = "class E:\n    def __init__(self, *a): pass\n"


def project(
    folder: Path, *, run: str = "", evaluator: str = "mine", engine: str = "mine", channel: str = "mine"
) -> Project:
    (folder / "capitals.jsonl").write_text("{}\n")
    text = CONFIG.format(run=run, evaluator=evaluator, engine=engine, channel=channel)
    return Project(parse_config(text, folder / "tracker.toml"))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings one part of each kind, all called `mine`."""
    points = {f"tracker.{kind}:mine": "E" for kind in ("engines", "evaluators", "channels", "sources")}
    package = written(tmp_path / "acme_mine", version="1.2", points=points, code=GOOD)
    monkeypatch.syspath_prepend(str(package))
    return package


@pytest.mark.usefixtures("mine")
def test_a_name_that_nothing_has_lists_those_that_are_known(tmp_path: Path) -> None:
    wrong = project(tmp_path, engine="mien", evaluator="mien", channel="mien", run='source = "mien"')
    said = {}
    asked: dict[str, Callable[[], object]] = {
        "engine": wrong.serve_spec,
        "evaluator": wrong.suite,
        "channel": lambda: wrong.channels,
        "checkpoint source": lambda: open_source(wrong.config, tmp_path / "pins"),
    }
    for what, ask in asked.items():
        with pytest.raises(ConfigError, match=f"there is no {what} `mien`; known: ") as caught:
            ask()
        said[what] = caught.value.message
    assert all("mine" in text for text in said.values())
    assert "vllm" in said["engine"]
    assert "evalscope, lm-eval" in said["evaluator"]
    assert "slack" in said["channel"]


@pytest.mark.usefixtures("mine")
def test_package_and_version_separate_series_and_so_do_settings(tmp_path: Path) -> None:
    here = project(tmp_path)
    assert here.serve_spec().program == Program(name="mine", version="acme_mine 1.2")
    (benchmark,) = here.suite().benchmarks
    assert benchmark.program == Program(name="mine", version="acme_mine 1.2")
    suite = Suite(name="s", benchmarks=(benchmark,))
    programs = (
        None,
        Program(name="mine", version="acme_mine 1.2"),
        Program(name="mine", version="acme_mine 1.3"),
        Program(name="yours", version="acme_mine 1.2"),
        Program(name="mine", version="acme_mine 1.2", options=(("shots", "5"),)),
    )
    benchmarks = [Benchmark(name="b", adapter="capitals", program=program) for program in programs]
    assert len({benchmark_fingerprint(b, suite) for b in benchmarks}) == len(programs)
    served = [serve_settings(ServeSpec(program=program)) for program in programs]
    assert len({repr(sorted(s.items(), key=str)) for s in served}) == len(programs)
    moved = Program(name="mine", version="acme_mine 1.2", command="/elsewhere/bin/mine")
    assert benchmark_fingerprint(
        Benchmark(name="b", adapter="capitals", program=moved), suite
    ) == benchmark_fingerprint(benchmarks[1], suite)


BROKEN = {
    "needs another version": (">=7", GOOD, "needs checkpoint-tracker>=7"),
    "cannot be imported": ("", "import nowhere_to_be_found", "ModuleNotFoundError"),
    "ends the process when imported": ("", "raise SystemExit(9)", "SystemExit"),
    "is not there": ("", "", "AttributeError"),
    "takes other arguments": ("", "class E: pass", "TypeError"),
    "lacks methods": ("", GOOD, "has no `name` and no `notify`"),
}


@pytest.mark.parametrize(("number", "fault"), list(enumerate(BROKEN)))
def test_a_broken_package_is_named_with_what_is_wrong(
    number: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs, code, said = BROKEN[fault]
    name = f"acme_broken_{number}"
    package = written(tmp_path / name, needs=needs, points={"tracker.channels:pager": "E"}, code=code)
    monkeypatch.syspath_prepend(str(package))
    with pytest.raises(ConfigError) as caught:
        _ = project(tmp_path, channel="pager").channels
    assert said in caught.value.message
    assert f"channel `pager` of {name} 1.0" in caught.value.message
    assert name in f"{caught.value.hint} {caught.value.message}"


@pytest.mark.usefixtures("mine")
def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(written(tmp_path / "yours", points={"tracker.engines:mine": "E"}, code=GOOD)))
    with pytest.raises(ConfigError, match=r"several packages bring the engine `mine`: acme_mine 1\.2, yours 1\.0"):
        project(tmp_path).serve_spec()


def test_no_package_takes_the_place_of_what_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = written(tmp_path / "thief", points={f"{ENGINES.group}:vllm": "E"}, code="raise SystemExit(9)")
    monkeypatch.syspath_prepend(str(package))
    assert project(tmp_path, engine="vllm").serve_spec() == project(tmp_path, engine="vllm").config.serve.to_spec()
    with pytest.raises(ConfigError, match="there is no engine `vllm`"):
        find(Kind(group=ENGINES.group, what="engine", setting="x", built_in=("vllm",)), "vllm")


def test_a_worker_with_another_version_refuses_the_plan(tmp_path: Path, mine: Path) -> None:
    code = f"{GOOD}    serving = rest = used_cpu_s = close = lambda self, *a, **k: None\n"
    (mine / "acme_mine.py").write_text(code)
    engines = EngineByKind(tmp_path / "work", SystemClock())
    spec = ServeSpec(engine=EngineKind.PLUGIN, program=Program(name="mine", version="acme_mine 1.1"))
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=1)
    with (
        pytest.raises(ConfigError, match=r"planned with acme_mine 1\.1, and the engine `mine` of acme_mine 1\.2"),
        engines.serving(checkpoint, spec, progress=print),
    ):
        pytest.fail("it must not be served")
    engines.close()


def test_a_secret_among_the_settings_of_a_part_is_refused_and_not_repeated(tmp_path: Path) -> None:
    text = CONFIG.format(run="", evaluator="mine", engine="mine", channel="mine")
    with pytest.raises(ConfigError) as caught:
        parse_config(f'{text}options = {{ api_token = "hunter2hunter2" }}\n', tmp_path / "tracker.toml")
    assert "api_token_env" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_settings_are_texts_and_a_path_that_begins_with_a_dot_counts_from_the_file(tmp_path: Path) -> None:
    text = CONFIG.format(run="", evaluator="mine", engine="mine", channel="mine")
    options = 'options = { path = "./a.txt", level = 3, on = true, share = 0.5, key_env = "PAGER" }\n'
    config = parse_config(text + options, tmp_path / "tracker.toml")
    (channel,) = config.alerts.to_channels()
    assert channel.program is not None
    assert dict(channel.program.options) == {
        "path": str(tmp_path / "a.txt"), "level": "3", "on": "true", "share": "0.5", "key_env": "PAGER",
    }  # fmt: skip
    assert config.alerts.variables() == ("PAGER",)


def test_a_source_that_raises_finds_nothing_is_behind_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "class E:\n    calls = 0\n    def __init__(self, *a): pass\n"
        "    def ready(self, now):\n        self.calls += 1\n"
        "        if self.calls < 3: raise RuntimeError('the shelf is away')\n        return ()\n"
        "    def is_behind(self): return False\n    gaps = give_up = wait = wake = close = lambda self, *a: ()\n"
    )
    package = written(tmp_path / "acme_shelf", points={"tracker.sources:shelf": "E"}, code=code)
    monkeypatch.syspath_prepend(str(package))
    source = open_source(project(tmp_path, run='source = "shelf"').config, tmp_path / "pins")
    behind = []
    for _ in range(3):
        assert source.ready(datetime.now(UTC)) == ()
        behind.append(source.is_behind())
    assert behind == [True, True, False]


def test_the_harness_is_found_beside_us_and_its_version_separates_series(tmp_path: Path) -> None:
    (benchmark,) = project(tmp_path, evaluator="lm-eval").suite().benchmarks
    assert benchmark.program is not None
    assert benchmark.program.version == f"lm-eval {version('lm_eval')}"
    assert Path(benchmark.program.command).is_file()
    text = CONFIG.format(run="", evaluator="lm-eval", engine="vllm", channel="mine").replace(
        "[serve]", '[suite]\nlm_eval = "/nowhere/lm_eval"\n[serve]'
    )
    with pytest.raises(ConfigError, match="/nowhere/lm_eval") as caught:
        Project(parse_config(text, tmp_path / "tracker.toml")).suite()
    assert "pip install 'lm-eval[api]'" in caught.value.hint
