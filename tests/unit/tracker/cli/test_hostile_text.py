"""Names and messages of others on the terminal and in JSON: shown, and never obeyed."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from eval_jobs.queue_types import QueueState, Running
from eval_jobs.records.progress import Progress, Stage
from tests.records import forgetting_run
from tracker.app.world import Tick
from tracker.cli.json_output import json_text
from tracker.cli.tables.watch_display import WatchDisplay
from tracker.config import parse_config

RUN = forgetting_run()
HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[31m",
    "[red]x[/red]",
    "a\nb\rc",
    "\u202egnp.exe",
    "\ud83d",
    "\x00",
    "\x9b1m",
]
CONTROLS = set("\x1b\x07\r\u202e\ud83d\x00\x9b")
NOTHING = Tick(checkpoints=(), gaps=(), skipped=(), reports=(), unsent=0)
CONFIG = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "arc"\n'


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_watching_shows_cannot_disturb_the_terminal(hostile: str, tmp_path: Path) -> None:
    stream = io.StringIO()
    display = WatchDisplay(Console(file=stream, width=200), parse_config(CONFIG, tmp_path / "tracker.toml"), float)
    checkpoint = replace(RUN.records[0].plan.checkpoint, source_uri=f"/out/{hostile}/checkpoint-100")
    gap = replace(RUN.gaps[0], message=f"the model said {hostile}", hint=hostile)
    display.show(replace(NOTHING, checkpoints=(checkpoint,), gaps=(gap,)), QueueState())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert not CONTROLS & set(stream.getvalue())
    if hostile.startswith("["):
        assert hostile in lines[0]  # shown as it is, not taken for markup


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_live_line_shows_text_of_a_worker_escaped(hostile: str, tmp_path: Path) -> None:
    said = Progress(stage=Stage.LOADING, note=hostile)
    running = Running(plan=RUN.records[0].plan, worker="w", progress=said, since=datetime(2026, 3, 14, tzinfo=UTC))
    display = WatchDisplay(Console(), parse_config(CONFIG, tmp_path / "tracker.toml"), float)
    display.show(NOTHING, QueueState(running=(running,)))
    assert not (CONTROLS | {"\n"}) & set(str(display._progress._spinner.text))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_json_for_scripts_is_ascii_and_gives_the_text_back(hostile: str) -> None:
    gap = replace(RUN.gaps[0], message=hostile)
    text = json_text("history", (gap,))
    assert text.isascii()
    assert json.loads(text)["result"][0]["message"] == hostile
