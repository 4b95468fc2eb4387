"""What a watcher does without, to stay small."""

import subprocess
import sys
from pathlib import Path

WATCH = """
import sys
from tracker.cli.commands.to_watch.watch import command
command.main(["--config", sys.argv[1], "--until-idle", "--workers", "0"], standalone_mode=False)
import pyarrow
print(*sorted({"evalscope", "openai", "torch", "vllm"} & set(sys.modules)), pyarrow.default_memory_pool().backend_name)
"""


def test_a_watcher_loads_neither_evaluator_nor_engine_and_keeps_no_pool(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    config = tmp_path / "tracker.toml"
    config.write_text(
        '[run]\nname = "run"\noutput_dir = "out"\n[watch]\nsettle_s = 0.1\n'
        '[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
    )
    command = [sys.executable, "-c", WATCH, str(config)]
    watched = subprocess.run(command, capture_output=True, text=True, check=False)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.splitlines()[-1] == "system"
