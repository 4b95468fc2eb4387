"""The tables of sweeps: what they mean, what is refused, and in which words."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.errors import BadData, ConfigError
from eval_jobs.types import EngineKind
from tracker.config import parse_config
from tracker.domain.sweeps.matrix import plans_of
from tracker.domain.sweeps.types import Missed, Pick
from tracker.wiring.project import Project

HERE = Path("/project/tracker.toml")
PROJECT = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
WHOLE = """
[[schedule]]
name = "nightly"
cron = "0 2 * * *"
time_zone = "Europe/Berlin"
missed = "skip"
checkpoints = ["latest:3", "best:sums", "base@600"]
max_evaluations = 40
[schedule.matrix]
temperature = [0.0, 0.7]
prompt = ["plain", "polite"]
[schedule.prompts]
plain = ""
polite = "please: {question}"
[schedule.load]
concurrency = [8, 1]
request_rate = [2.5]
requests = 16
[[schedule.endpoint]]
name = "big"
base_url = "http://127.0.0.1:9/v1"
model = "big-{step}"
api_key_env = "BIG_KEY"
"""


def project(tmp_path: Path, text: str = WHOLE) -> Project:
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    (tmp_path / "more.jsonl").write_text('{"question": "2+2=", "answer": "4"}\n')
    return Project(parse_config(PROJECT + text, tmp_path / "tracker.toml"))


def test_a_table_becomes_the_sweep_that_it_describes(tmp_path: Path) -> None:
    sweep = project(tmp_path).sweeps()["nightly"]
    assert sweep.timetable is not None
    assert (sweep.timetable.cron, sweep.timetable.missed) == ("0 2 * * *", Missed.SKIP)
    assert [selector.pick for selector in sweep.checkpoints] == [Pick.LATEST, Pick.BEST, Pick.STEP]
    assert dict(sweep.axes) == {"temperature": (0.0, 0.7), "prompt": ("plain", "polite")}
    assert [(load.name, load.concurrency, load.request_rate) for load in sweep.loads] == [
        ("c1", 1, None),
        ("c8", 8, None),
        ("r2.5", 16, 2.5),
    ]
    (other,) = sweep.endpoints
    assert (other.serve.engine, other.serve.api_key_env) == (EngineKind.REMOTE, "BIG_KEY")
    assert len(plans_of(sweep, (), run="r", due_at=datetime(2026, 11, 22, tzinfo=UTC))) == 4


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("", ["sums"]),
        ('benchmarks = ["sums"]', ["sums"]),
        ('[[schedule.benchmark]]\nbenchmark = "exact"\ndata = "more.jsonl"', ["more"]),
        ('benchmarks = ["sums"]\n[[schedule.benchmark]]\nbenchmark = "exact"\ndata = "more.jsonl"', ["sums", "more"]),
        ("benchmarks = []\n[schedule.load]\nconcurrency = [1]", []),
    ],
)
def test_a_sweep_asks_all_benchmarks_those_it_names_or_its_own(tmp_path: Path, asked: str, names: list[str]) -> None:
    sweep = project(tmp_path, f'[[schedule]]\nname = "s"\n{asked}\n').sweeps()["s"]
    assert [benchmark.name for benchmark in sweep.suite.benchmarks] == names


def test_a_project_without_sweeps_has_none(tmp_path: Path) -> None:
    assert project(tmp_path, "").sweeps() == {}


def test_a_prompt_that_does_not_fit_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="prompt_template of `sums` has the fields"):
        project(tmp_path, WHOLE.replace("{question}", "{query}")).sweeps()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('name = "s"\ncron = "61 * * * *"', "invalid cron '61 * * * *': Bad minute"),
        ('name = "s"\ncron = "0 2 * * *"\ntime_zone = "Berlin"', "invalid time zone 'Berlin'"),
        ('name = "s"\ncheckpoints = ["newest"]', "invalid checkpoint selector 'newest'"),
        ('name = "s"\ncheckpoints = []', "has no target"),
        ('name = "s"\nbenchmarks = []', "measures nothing"),
        ('name = "s"\nbenchmarks = ["nope"]', "no [[benchmark]] named 'nope'"),
        ('name = "a/b"', "pattern"),
        ('name = ""', "pattern"),
        ('name = "s"\n[schedule.matrix]\ntemperature = [0.5, 0.5]', "temperature contains a value twice"),
        ('name = "s"\n[schedule.matrix]\ntemperature = [nan]', "temperature"),
        ('name = "s"\n[schedule.matrix]\nprompt = ["cot"]', "matrix.prompt: 'cot' not found"),
        ('name = "s"\n[schedule.matrix]\ntemprature = [1.0]', "did you mean temperature?"),
        ('name = "s"\n[schedule.load]\nconcurrency = [0]', "greater than 0"),
        ('name = "s"\n[schedule.load]\nrequest_rate = [inf]', "request_rate"),
        (
            'name = "s"\n[schedule.matrix]\nseed = [1,2,3,4,5,6]\ntop_k = [1,2,3,4,5,6]\nfew_shot = [0,1,2,3,4,5]',
            "has 216 variants (max_evaluations = 200)",
        ),
        (
            'name = "s"\n[[schedule.endpoint]]\nname = "e"\nbase_url = "http://me:secret@host/v1"',
            "it contains a key or password",
        ),
        (
            'name = "s"\nbenchmarks = []\n[schedule.load]\nconcurrency = [1]\n[schedule.matrix]\nseed = [1]',
            "a matrix but no benchmarks",
        ),
        ('name = "s"\n[[schedule]]\nname = "s"', "duplicate sweep name 's'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{PROJECT}[[schedule]]\n{text}\n", HERE)
    assert word in caught.value.message
    assert "secret" not in caught.value.message
