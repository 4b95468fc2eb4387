"""`tracker` as a user calls it, and a project whose checkpoints a scripted server answers for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TRACKER = Path(sys.executable).parent / "tracker"


def tracker(project: Path, *arguments: str, code: int = 0) -> str:
    """Run `tracker` in a project; return all that it says, having checked its exit code."""
    result = subprocess.run([str(TRACKER), *arguments], cwd=project, capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


def write_project(folder: Path, base_url: str, *, rows: int, more: str = "") -> None:
    """Write a project of two benchmarks, `sums` and `facts`, with so many questions `sum 0`, `fact 0` and so on.

    The model of step 100 is called `step-100` at `base_url`; `more` goes into tracker.toml.
    """
    for kind in ("sum", "fact"):
        questions = [{"question": f"{kind} {i}", "answer": str(i)} for i in range(rows)]
        (folder / f"{kind}s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    (folder / "tracker.toml").write_text(
        f'[run]\nname = "r"\noutput_dir = "out"\n[serve]\nengine = "remote"\nbase_url = "{base_url}"\n'
        'model = "step-{step}"\n[probe]\nenabled = false\n[tracking]\nenabled = false\n[watch]\nsettle_s = 0.1\n'
        f'{more}[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
        '[[benchmark]]\nbenchmark = "exact"\ndata = "facts.jsonl"\n'
    )
