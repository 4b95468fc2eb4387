"""Render the pictures of the documentation from a fresh run of the demo: `make pictures`. Needs Chromium; 5 minutes."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Page, ViewportSize, sync_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
BIN = Path(sys.executable).parent
COLUMNS = 110
WATCH_LINES = 26
LOST_STEP = 700
"""Of the demo: the first checkpoint without the first two skills."""
CRASH_STEP = 750
NOTEBOOK = ROOT / "examples" / "results.ipynb"
PLOT_WITH_LOSS = 1
"""The second plot of the notebook: scores and training loss on one axis."""
LOAD_TIMEOUT_MS = 120_000
MLFLOW_SIZE = ViewportSize(width=1900, height=1000)
"""Below about 1700 pixels MLflow shows one chart below the other."""
CLOSE_ASSISTANT = """() => document.querySelector("[data-component-id='mlflow.assistant.chat_panel.close']")?.click()"""
STYLES = {"▲ +improved": "green", "▼+ +(regressed|forgotten)": "bold red", "~ +inconclusive": "dim"}


def main() -> None:
    """Run the demo in a temporary folder and write every picture."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "demo"
        said = _output(sys.executable, str(ROOT / "examples" / "tiny_forgetting" / "demo.py"), "--dir", str(folder))
        config = folder / "tracker.toml"
        lines = said[said.index(" watching ") :].replace(str(folder), ".demo").splitlines()
        _terminal("tracker watch", "\n".join(lines[:WATCH_LINES]), "terminal-watch.svg")
        _terminal("tracker history", _tracker(config, "history"), "terminal-history.svg")
        with _browser() as page:
            for name, arguments in (("report.png", ()), ("checkpoint.png", (str(LOST_STEP),))):
                file = Path(temporary) / f"{name}.html"
                _tracker(config, "report", *arguments, "--output", str(file))
                _screenshot(page, file.as_uri(), name)
            _notebook(page, folder)
            _mlflow(page, config)
            _site(page, Path(temporary) / "site")
            _training(page, Path(temporary))


# --- private


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _tracker(config: Path, *arguments: str) -> str:
    return _output(str(BIN / "tracker"), *arguments, "--config", str(config))


def _terminal(command: str, shown: str, name: str) -> None:
    """Draw a terminal with the output of a command."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    text = Text(f"$ {command}\n{shown.rstrip()}")
    for pattern, style in STYLES.items():
        text.highlight_regex(pattern, style)
    console.print(text, soft_wrap=False)
    console.save_svg(str(IMAGES / name), title=command, unique_id=name.partition(".")[0])


@contextmanager
def _browser() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium not found\n  hint: install it (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--hide-scrollbars"])
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def _screenshot(page: Page, address: str, name: str, *, wait_for: str = "body", settle_ms: int = 1_000) -> None:
    page.goto(address, timeout=LOAD_TIMEOUT_MS)
    page.locator(wait_for).first.wait_for(timeout=LOAD_TIMEOUT_MS)
    page.evaluate(CLOSE_ASSISTANT)
    page.wait_for_timeout(settle_ms)  # charts draw with an animation
    page.screenshot(path=str(IMAGES / name))


def _notebook(page: Page, folder: Path) -> None:
    """Run the example notebook in the folder of a project, write it with its outputs, and show two of them."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    nbformat.write(notebook, NOTEBOOK)  # type: ignore[no-untyped-call]
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    plots = [data["image/png"] for data in outputs if "image/png" in data]
    (IMAGES / "python.png").write_bytes(base64.b64decode(plots[PLOT_WITH_LOSS]))
    table = outputs[-1]["text/html"]
    page.goto("about:blank")  # within the report, its content security policy would hold
    page.set_content(f"<style>body {{ font: 14px sans-serif }} td, th {{ padding: 2px 8px }}</style>{table}")
    page.screenshot(path=str(IMAGES / "python-gate.png"), clip={"x": 0, "y": 0, "width": 1280, "height": 130})


def _mlflow(page: Page, config: Path) -> None:
    """Show the page of the run, and two checkpoints side by side."""
    links = _tracker(config, "compare", str(LOST_STEP - 100), str(LOST_STEP), "--mlflow")
    command = [str(BIN / "tracker"), "ui", "--port", "0", "--config", str(config)]
    page.set_viewport_size(MLFLOW_SIZE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = next(line.strip() for line in server.stdout or () if line.startswith("http"))
            _screenshot(page, address, "mlflow.png", wait_for=".js-plotly-plot", settle_ms=5_000)
            found = re.search(r"#/\S+", links)
            if found is not None:
                _screenshot(page, address.partition("#")[0] + found[0], "mlflow-samples.png", settle_ms=8_000)
        finally:
            server.terminate()


def _training(page: Page, temporary: Path) -> None:
    """Show the report of a training that failed: its curves and incidents."""
    folder, file = temporary / "crash", temporary / "crash.html"
    demo = ROOT / "examples" / "tiny_forgetting" / "demo.py"
    _output(sys.executable, str(demo), "--dir", str(folder), "--crash-at", str(CRASH_STEP))
    _tracker(folder / "tracker.toml", "report", "--output", str(file))
    page.set_viewport_size(ViewportSize(width=1280, height=900))
    page.goto(f"{file.as_uri()}#curves", timeout=LOAD_TIMEOUT_MS)
    page.wait_for_timeout(1_000)
    page.screenshot(path=str(IMAGES / "training.png"))


def _site(page: Page, folder: Path) -> None:
    _output(str(BIN / "mkdocs"), "build", "--quiet", "--site-dir", str(folder))
    _screenshot(page, (folder / "concepts" / "index.html").as_uri(), "site.png")


if __name__ == "__main__":
    main()
