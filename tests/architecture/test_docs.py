"""Generated pages are up to date; pages stay short and easy to read, and their examples are valid."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import textstat
from pydantic import ValidationError

from docs.generator.__main__ import DOCS, generated
from docs.generator.settings import plain_settings
from docs.generator.texts import texts_of
from eval_jobs.errors import TrackerError
from tests.requires import PROJECT
from tracker.cli.main import COMMANDS
from tracker.cli.settings_text import tables
from tracker.config import Config

DECISIONS = DOCS / "decisions"
FAULTS = DOCS / "explanation" / "faults.md"
"""Made of the names of tests: no prose."""
TRAINERS, LIMITS = DOCS / "works-with.md", DOCS / "reference" / "limits.md"
RESULTS = DOCS / "reference" / "results.md"
TROUBLE = DOCS / "reference" / "trouble.md"
NEUTRAL = DOCS / "reference" / "neutral-settings.md"
"""Tables of runs, of numbers and of arguments: no prose, either."""
PAGES = sorted(page for page in DOCS.rglob("*.md") if not page.is_relative_to(DECISIONS))
PROSE = [page for page in [PROJECT / "README.md", *PAGES] if page != FAULTS]
MAX_WORDS, MAX_DECISION_WORDS, MAX_README_WORDS, MAX_GLOSSARY = 25_000, 6_000, 600, 25
MIN_READING_EASE, MAX_MEDIAN_SENTENCE = 50, 18

BANNED = re.compile(
    r"\b(nobody|somebody|whoever|anybody|anew|mend(s|ed)?|gave up|gives? up|given up|goes on|stands? by|asked twice"
    r"|is told|was told|were told|are told|sign of life|holds up|is said|are said)\b",
    re.IGNORECASE,
)
"""The standard words are: notified, again, fix, delete, continue, standby, heartbeat."""


def words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def prose(page: Path) -> str:
    """Return the sentences of a page, without code, tables, headings, images and the marks of Markdown."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    kept = [line for line in text.splitlines() if not re.match(r"\s*(#|\||!\[|!!!|===|<)", line)]
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(kept))
    text = re.sub(r"`[^`]*`", "code", text)
    # The end of an item or a paragraph ends a sentence.
    return re.sub(r"(?<![.!?:])\s*(?=\n\s*(\n|[-*] |\d+\. ))", ".", text.replace("*", ""))


def test_generated_pages_are_up_to_date() -> None:
    expected = generated()
    stale = [str(path.relative_to(PROJECT)) for path, text in expected.items() if _text(path) != text]
    extra = set((DOCS / "reference" / "schemas").iterdir()) - expected.keys()
    assert not stale, "run `make docs`"
    assert not extra


def test_the_documentation_stays_short() -> None:
    assert (
        sum(words(page) for page in PAGES if page not in {FAULTS, TRAINERS, LIMITS, NEUTRAL, RESULTS, TROUBLE})
        <= MAX_WORDS
    )
    assert sum(map(words, DECISIONS.glob("*.md"))) <= MAX_DECISION_WORDS
    assert words(PROJECT / "README.md") <= MAX_README_WORDS
    glossary = _text(DOCS / "concepts" / "index.md").partition("## Glossary")[2]
    assert 0 < len(re.findall(r"^\| \w", glossary, re.MULTILINE)) - 1 <= MAX_GLOSSARY


def test_pages_are_easy_to_read() -> None:
    hard = []
    for page in PROSE:
        text = prose(page)
        ease = textstat.flesch_reading_ease(text)
        lengths = [len(sentence.split()) for sentence in re.split(r"(?<=[.!?])\s+", text) if sentence.split()]
        if ease < MIN_READING_EASE or median(lengths) > MAX_MEDIAN_SENTENCE:
            hard.append(f"{page.relative_to(PROJECT)}: Flesch {ease:.0f}, {median(lengths)} words a sentence")
    assert not hard


def test_user_visible_texts_have_no_private_words() -> None:
    found = [f"{page.relative_to(PROJECT)}: {word}" for page in [*PROSE, FAULTS] for word in _banned(_text(page))]
    for package in ("tracker", "eval_jobs", "dashboards"):
        for file in sorted((PROJECT / package).rglob("*.py")):
            found += [
                f"{file.relative_to(PROJECT)}: {word} in {text!r}"
                for _, text in texts_of(file)
                for word in _banned(text)
            ]
        for file in sorted((PROJECT / package).rglob("*.j2")):
            found += [f"{file.relative_to(PROJECT)}: {word}" for word in _banned(_text(file))]
    assert not found


def test_every_command_setting_and_error_code_is_documented_once() -> None:
    headings = Counter(re.findall(r"^#+ (.+)$", "\n".join(map(_text, PAGES)), re.MULTILINE))
    subjects = [f"tracker {name}" for name in COMMANDS] + [error.code for error in _errors(TrackerError)]
    subjects += [f"`{table.head}`" for table in tables()]
    assert {name: headings[name] for name in subjects if headings[name] != 1} == {}
    page = _text(DOCS / "reference" / "settings.md")
    for section in {table.section for table in tables()}:
        for key, _ in plain_settings(section):
            assert f"\n`{key}` (" in page


def test_messages_name_pages_by_their_titles() -> None:
    titles = {re.findall(r"^# (.+)$", _text(page), re.MULTILINE)[0]: page for page in PAGES}
    menu = re.findall(r"^ +- (.+): (.+\.md)$", _text(PROJECT / "mkdocs.yml"), re.MULTILINE)
    assert {DOCS / page: title for title, page in menu if title != "Home"} == {
        page: title for title, page in titles.items() if page != DOCS / "index.md"
    }
    named = []
    for package in ("tracker", "eval_jobs", "dashboards"):
        for file in (PROJECT / package).rglob("*.py"):
            for _, text in texts_of(file):
                assert "docs/" not in text, f"{file}: the installed program has no such folder"
                named += re.findall(r'"([^"]+)" in the documentation', text)
    assert named
    assert set(named) <= titles.keys()


def test_every_toml_example_is_a_valid_configuration() -> None:
    wrong = []
    for page in PROSE:
        for block in re.findall(r"^ *```toml[^\n]*\n(.*?)^ *```", _text(page), re.DOTALL | re.MULTILINE):
            document = tomllib.loads(block)
            if "project" in document:  # a pyproject.toml
                continue
            document.setdefault("run", {})
            document["run"] = {"name": "r", "output_dir": "out"} | document["run"]
            named = [{"benchmark": "exact", "data": f"{name}.jsonl"} for name in ("facts", "words")]
            document.setdefault("benchmark", [{"benchmark": "gsm8k"}, *named])
            try:
                Config.model_validate(document)
            except ValidationError as error:
                wrong.append(f"{page.relative_to(PROJECT)}: {error}")
    assert not wrong


# --- private


def _text(path: Path) -> str:
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return ""


def _banned(text: str) -> list[str]:
    return [match[0] for match in BANNED.finditer(text)]


def _errors(error: type[TrackerError]) -> Iterator[type[TrackerError]]:
    yield error
    for each in error.__subclasses__():
        if each.__module__.startswith("eval_jobs"):
            yield from _errors(each)
