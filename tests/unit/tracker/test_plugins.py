"""What is said of a part that no package brings, several bring, or that is broken; nobody is started for it."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, EvaluateError, ServeError, TrackerError
from eval_jobs.evaluate.plugin_evaluator import PluginEvaluator
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.plugins import ENGINES, PluginKind, find_plugin
from eval_jobs.identity import benchmark_fingerprint, serve_settings
from eval_jobs.serve.plugin_engine import PluginEngine
from eval_jobs.serve.selection import EngineByKind
from eval_jobs.types import (
    Benchmark,
    Endpoint,
    EngineInfo,
    EngineKind,
    EvalResult,
    Program,
    SampleScore,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tests.plugins import written
from tests.requires import requires_package
from tests.tiny_model import checkpoint_record, write_checkpoint
from tracker.config import parse_config
from tracker.wiring.checkpoints import open_source
from tracker.wiring.programs import serve_of
from tracker.wiring.project import Project, channels_of

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
ENDPOINT = Endpoint(
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env="",
    info=EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log=""),
)
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
        "engine": lambda: serve_of(wrong.config),
        "evaluator": wrong.suite,
        "channel": lambda: channels_of(wrong.config),
        "checkpoint source": lambda: open_source(wrong.config, tmp_path / "pins"),
    }
    for what, ask in asked.items():
        with pytest.raises(ConfigError, match=f"unknown {what} `mien` \\(known: ") as caught:
            ask()
        said[what] = caught.value.message
    assert all("mine" in text for text in said.values())
    assert "vllm" in said["engine"]
    assert "evalscope, lm-eval" in said["evaluator"]
    assert "slack" in said["channel"]


@pytest.mark.usefixtures("mine")
def test_package_and_version_separate_series_and_so_do_settings(tmp_path: Path) -> None:
    here = project(tmp_path)
    assert serve_of(here.config).program == Program(name="mine", version="acme_mine 1.2")
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
    "needs another version": (">=7", GOOD, "requires checkpoint-tracker>=7"),
    "cannot be imported": ("", "import nowhere_to_be_found", "ModuleNotFoundError"),
    "ends the process when imported": ("", "raise SystemExit(9)", "SystemExit"),
    "is not there": ("", "", "AttributeError"),
    "takes other arguments": ("", "class E: pass", "TypeError"),
    "lacks methods": ("", GOOD, "lacks `name` and `notify`"),
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
        channels_of(project(tmp_path, channel="pager").config)
    assert said in caught.value.message
    assert f"channel `pager` of {name} 1.0" in caught.value.message
    assert name in f"{caught.value.hint} {caught.value.message}"


@pytest.mark.usefixtures("mine")
def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(written(tmp_path / "yours", points={"tracker.engines:mine": "E"}, code=GOOD)))
    with pytest.raises(ConfigError, match=r"several packages provide the engine `mine`: acme_mine 1\.2, yours 1\.0"):
        serve_of(project(tmp_path).config)


def test_no_package_takes_the_place_of_what_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = written(tmp_path / "thief", points={f"{ENGINES.group}:vllm": "E"}, code="raise SystemExit(9)")
    monkeypatch.syspath_prepend(str(package))
    assert serve_of(project(tmp_path, engine="vllm").config) == project(tmp_path, engine="vllm").config.serve.to_spec()
    with pytest.raises(ConfigError, match="unknown engine `vllm`"):
        find_plugin(PluginKind(group=ENGINES.group, what="engine", setting="x", built_in=("vllm",)), "vllm")


def test_a_worker_with_another_version_refuses_the_plan(tmp_path: Path, mine: Path) -> None:
    code = f"{GOOD}    serving = rest = used_cpu_s = close = lambda self, *a, **k: None\n"
    (mine / "acme_mine.py").write_text(code)
    engines = EngineByKind(tmp_path / "work", SystemClock())
    spec = ServeSpec(engine=EngineKind.PLUGIN, program=Program(name="mine", version="acme_mine 1.1"))
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=1)
    with (
        pytest.raises(ConfigError, match=r"planned with acme_mine 1\.1, but the engine `mine` of acme_mine 1\.2"),
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
    swept = '[[schedule]]\nname = "s"\n[[schedule.benchmark]]\nbenchmark = "b"\nevaluator = "mine"\n' + options
    config = parse_config(text + options + swept, tmp_path / "tracker.toml")
    (channel,) = config.alerts.to_channels()
    assert channel.program is not None
    assert dict(channel.program.options) == {
        "path": str(tmp_path / "a.txt"), "level": "3", "on": "true", "share": "0.5", "key_env": "PAGER",
    }  # fmt: skip
    assert config.alerts.variables() == ("PAGER",)
    assert config.schedule[0].benchmark[0].options["path"] == str(tmp_path / "a.txt")


def test_a_source_that_raises_returns_nothing_and_is_called_again(
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
    harness = requires_package("lm_eval")
    (benchmark,) = project(tmp_path, evaluator="lm-eval").suite().benchmarks
    assert benchmark.program is not None
    assert benchmark.program.version == f"lm-eval {harness}"
    assert Path(benchmark.program.command).is_file()
    text = CONFIG.format(run="", evaluator="lm-eval", engine="vllm", channel="mine").replace(
        "[serve]", '[suite]\nlm_eval = "/nowhere/lm_eval"\n[serve]'
    )
    with pytest.raises(ConfigError, match="/nowhere/lm_eval") as caught:
        Project(parse_config(text, tmp_path / "tracker.toml")).suite()
    assert "pip install 'lm-eval[api]'" in caught.value.hint


def test_a_setting_that_a_part_does_not_have_is_refused_with_those_that_it_has() -> None:
    program = Program(name="append", options=(("pth", "a.jsonl"),))
    with pytest.raises(ConfigError, match=r"unknown option `pth` of `append` \(known: path, level\)"):
        program.check_options("path", "level")
    Program(name="append", options=(("path", "a.jsonl"),)).check_options("path", "level")


EVALUATOR = """
import math
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.types import EvalResult, SampleScore

class E:
    def __init__(self, *a): pass
    prepare = forget = close = lambda self, *a, **k: None
    def kept(self): return ()
    def evaluate(self, suite, endpoint, *, plan_id, progress):
        (b,) = suite.benchmarks
        def sample(**changes):
            return SampleScore(**(dict(sample_id="a", subset="d", score=1.0, status="scored") | changes))
        print_of_it = benchmark_fingerprint(b, suite)
        result = dict(benchmark=b.name, fingerprint=print_of_it, metric="m", duration_s=1.0, samples=[sample()])
        return [eval(b.adapter)]
"""
WRONG = {
    "a dict": ("result", "result of `b` is invalid: expected EvalResult, got dict"),
    "no samples": ("EvalResult(**result | dict(samples=None))", "result of `b`.samples is invalid"),
    "a score that is none": (
        "EvalResult(**result | dict(samples=[sample(score=math.nan)]))",
        "a status that contradicts their score",
    ),
    "a score of another scale": (
        "EvalResult(**result | dict(samples=[sample(score=87)]))",
        "score 87 is not between 0 and 1",
    ),
    "a score of a library": (
        "EvalResult(**result | dict(samples=[sample(score=__import__('numpy').float32(1))]))",
        "Unable to serialize unknown type: <class 'numpy.float32'>",
    ),
    "a status of its own": (
        "EvalResult(**result | dict(samples=[sample(status='great')]))",
        r"result of `b`.samples\[0\].status is invalid",
    ),
    "a number as id": (
        "EvalResult(**result | dict(samples=[sample(sample_id=3)]))",
        r"result of `b`.samples\[0\].sample_id is invalid",
    ),
    "one sample twice": ("EvalResult(**result | dict(samples=[sample(), sample()]))", "2 samples, 1 of them unique"),
    "tokens in words": ("EvalResult(**result | dict(input_tokens='many'))", "input_tokens is invalid"),
    "no duration": ("EvalResult(**result | dict(duration_s=math.nan))", "invalid duration nan s"),
    "another direction": (
        "EvalResult(**result | dict(higher_is_better=False))",
        "higher_is_better = False contradicts the settings",
    ),
    "another benchmark": ("EvalResult(**result | dict(benchmark='c'))", "wrong name `c` or wrong fingerprint"),
}


@pytest.fixture(scope="module")
def free_evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginEvaluator]:
    """An evaluator that gives whatever the benchmark's adapter says."""
    package = written(
        tmp_path_factory.mktemp("free") / "acme_free", points={"tracker.evaluators:free": "E"}, code=EVALUATOR
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(package))
        yield PluginEvaluator("free", package / "work", SystemClock())


def evaluated(evaluator: PluginEvaluator, given: str) -> EvalResult | TrackerError:
    program = Program(name="free", version="acme_free 1.0")
    suite = Suite(name="s", benchmarks=(Benchmark(name="b", adapter=given, program=program),))
    (outcome,) = evaluator.evaluate(suite, ENDPOINT, plan_id="p", progress=print)
    return outcome


@pytest.mark.parametrize("fault", WRONG)
def test_an_unreadable_or_implausible_result_is_an_error_that_names_the_package(
    fault: str, free_evaluator: PluginEvaluator
) -> None:
    given, said = WRONG[fault]
    outcome = evaluated(free_evaluator, given)
    assert isinstance(outcome, EvaluateError)
    assert "the evaluator `free` of acme_free 1.0" in outcome.message
    assert re.search(said, outcome.message), outcome.message


def test_a_result_comes_out_in_the_types_in_which_it_is_read_again(free_evaluator: PluginEvaluator) -> None:
    outcome = evaluated(free_evaluator, "EvalResult(**result)")
    assert isinstance(outcome, EvalResult)
    assert outcome.samples == (SampleScore(sample_id="a", subset="d", score=1.0, status=SampleStatus.SCORED),)
    assert isinstance(outcome.samples[0].status, SampleStatus)


def test_an_engine_a_source_and_a_channel_that_give_something_else_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import contextlib\nclass E:\n    name = 'log'\n    repeat_s = 'often'\n    def __init__(self, *a): pass\n"
        "    serving = lambda self, *a, **k: contextlib.nullcontext('http://somewhere')\n"
        "    used_cpu_s = lambda self: 'much'\n    ready = lambda self, now: ['/out/checkpoint-1']\n"
        "    rest = close = notify = gaps = is_behind = give_up = wait = wake = lambda self, *a: ()\n"
    )
    points = {f"tracker.{kind}:odd": "E" for kind in ("engines", "channels", "sources")}
    monkeypatch.syspath_prepend(str(written(tmp_path / "acme_odd", points=points, code=code)))
    here = project(tmp_path, engine="odd", channel="odd", run='source = "odd"')
    engine = PluginEngine("odd", tmp_path / "work", SystemClock())
    checkpoint = checkpoint_record(write_checkpoint(tmp_path / "checkpoint"), step=1)
    with (
        pytest.raises(ServeError, match=r"engine `odd` of acme_odd 1\.0: endpoint is invalid"),
        engine.serving(checkpoint, ServeSpec(), progress=print),
    ):
        pytest.fail("it must not be served")
    assert engine.used_cpu_s() is None
    with pytest.raises(ConfigError, match=r"checkpoint source `odd` of acme_odd 1\.0: checkpoint is invalid"):
        open_source(here.config, tmp_path / "pins").ready(datetime.now(UTC))
    with pytest.raises(ConfigError, match=r"channel `odd` of acme_odd 1\.0: repeat_s is invalid"):
        channels_of(here.config)
