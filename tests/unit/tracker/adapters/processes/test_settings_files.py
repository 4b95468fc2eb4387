"""Paths in settings files: values of places first, nothing of comments, and no wait for a file server."""

import json
from pathlib import Path
from threading import Event

import pytest

from tracker.adapters.processes.settings_files import MAX_PATHS, SettingsFiles, paths_in

SCRIPT = """
# output_dir = "out/old"
parser.add_argument("--output_dir", default="out/c")
config = SFTConfig(output_dir='out/d', logging_dir="..", model_name="tiny")
SAVE_TO = Path("runs") / "log.txt"
"""
LONG = "\n".join(f"# option {n} of the training, in /some/words\nkey_{n}: value_{n}" for n in range(3 * MAX_PATHS))


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("output_dir: /data/sft # as before: /old\n", ("/data/sft",)),
        ("lr: 1e-4\nsteps: 500\nbf16: true\nname: x\nsave_path: 'runs/my run'\n", ("runs/my run", "x")),
        ('{"model":"/models/q","train":{"output_dir": "/data/sft"}, "n": [1, 2]}', ("/data/sft", "/models/q")),
        ("data: ['a/b', c]\ncheckpoint:\n  - s3://b/c\n  - ../d\n", ("s3://b/c", "../d", "a/b", "c")),
        ("# output_dir: /old\n", ()),
        ("", ()),
    ],
)
def test_values_are_returned_those_of_places_first(text: str, paths: tuple[str, ...]) -> None:
    assert paths_in(text) == paths


def test_the_place_at_the_end_of_a_long_file_is_found() -> None:
    found = paths_in(LONG + "\noutput_dir: /data/sft\n")
    assert (found[0], len(found)) == ("/data/sft", MAX_PATHS)
    document = {f"key_{n}": f"value_{n}" for n in range(3 * MAX_PATHS)} | {"output_dir": "/data/sft"}
    assert paths_in(json.dumps(document))[0] == "/data/sft"


def test_files_are_found_in_arguments_of_both_forms(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("output_dir: out/a")
    (tmp_path / "b.json").write_text('{"out_path": "out/b"}')
    arguments = ("python", "--config=a.yaml", "b.json", "none.yml", "train.py")
    assert SettingsFiles().paths(arguments, str(tmp_path)) == ("out/a", "out/b")
    assert SettingsFiles().paths(("python", "train.py"), str(tmp_path)) == ()
    (tmp_path / "train.py").write_text(SCRIPT)
    found = SettingsFiles().script_paths(("torchrun", "train.py", "--config=a.yaml"), str(tmp_path))
    assert found == ("out/c", "out/d", "tiny", "runs", "log.txt")


def test_a_file_that_hangs_is_read_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, answers = tmp_path / "a.yaml", Event()
    path.write_text("output_dir: /data/sft")

    def read(path: Path, *_: object, **__: object) -> str:
        answers.wait()
        return path.read_text()

    monkeypatch.setattr("tracker.adapters.processes.settings_files.text_of", read)
    files = SettingsFiles(timeout_s=0.01)
    arguments = ("python", str(path))
    assert [files.paths(arguments, "/"), files.paths(arguments, "/")] == [None, None]
    assert len(caplog.messages) == 1
    files.timeout_s = 60.0
    answers.set()
    while (found := files.paths(arguments, "/")) is None:
        answers.wait()
    assert found == ("/data/sft",)
