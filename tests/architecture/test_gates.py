"""What keeps a change out: the workflow, the hooks before a commit, and the form of the changelog."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_push_is_tested_as_a_clean_checkout_is() -> None:
    workflow: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split()[-1] for command in commands] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert not any("cache" in str(step) for step in job["steps"])


def test_the_hooks_before_a_commit_are_checks_of_make_check() -> None:
    hooks: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (local,) = hooks["repos"]
    assert local["repo"] == "local"
    (checks,) = re.findall(r"^check: ([a-z ]+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = [hook["entry"].removeprefix("make ") for hook in local["hooks"]]
    assert named == [check for check in checks.split() if check != "unit"]


def test_the_changelog_begins_with_the_version_of_the_package_and_goes_back() -> None:
    versions = re.findall(r"^## \[(.+)\]$", CHANGELOG, re.MULTILINE)
    assert versions[0] == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    numbers = [tuple(int(part) for part in version.split(".")) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)


def test_each_entry_of_the_changelog_is_one_sentence_on_one_line() -> None:
    lines = [line for line in CHANGELOG.split("## [", 1)[1].splitlines() if line and not line.startswith("#")][1:]
    wrong = [line for line in lines if not re.fullmatch(r"- \S.*\.", line) or re.search(r"[.!?] +[A-Z`]", line)]
    assert wrong == []
