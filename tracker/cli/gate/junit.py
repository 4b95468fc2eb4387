"""Gate result -> JUnit XML as GitLab and Jenkins read it. Pure.

Both show failures and errors as the reason for stopping a change; Jenkins also marks a build as unstable for any.
So only required checks become failures or errors:

- regression: `failure`
- missing, incomparable: `error`, since nothing was tested
- inconclusive: `failure` of type `inconclusive`; `skipped` would look as if the change may be merged
- advisory and not passed: `skipped` with its result, since it decides nothing

GitLab shows the text of an element and Jenkins also its message, so both contain the reason. GitLab identifies a test
by `classname` and `name` and drops duplicates, so neither contains a step, and long names that were shortened to the
same text are numbered. Answers of models are never in `system-out`: GitLab reads its text as paths of attachments.
"""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable

from tracker.domain.gate import text as words
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.records.display import REPLACEMENT, clean


def gate_junit(report: GateReport) -> str:
    """Return one test case for each check, in ASCII, which is valid in whatever encoding the file is written in."""
    suite = ET.Element("testsuite", name=_legal(f"tracker gate: {words.sides_text(report)}"))
    lines = words.changed_lines(report)
    if lines:
        properties = ET.SubElement(suite, "properties")
        for line in lines:
            ET.SubElement(properties, "property", name="gate", value=_legal(line))
    seen: Counter[str] = Counter()
    for check in words.checks_of(report):
        name = _legal(check.name)
        seen[name] += 1
        suite.append(_case(check, name if seen[name] == 1 else f"{name} ({seen[name]})"))
    kinds = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    for name, path in kinds.items():
        suite.set(name, str(len(suite.findall(path))))
    suites = ET.Element("testsuites", {name: suite.get(name, "0") for name in kinds})
    suites.append(suite)
    ET.indent(suites)
    document = words.no_command(ET.tostring(suites, encoding="us-ascii").decode())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


_ILLEGAL = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids, even as character references."""


def _case(check: words.GateCheck, name: str) -> ET.Element:
    case = ET.Element("testcase", classname=f"gate.{check.kind}", name=name)
    evidence = tuple(_numbers(check))
    tag = _tag(check)
    if tag is None:
        ET.SubElement(case, "system-out").text = _legal("\n".join([check.reason, *evidence]))
        return case
    message = _legal(check.reason if check.required else f"advisory, {check.word}: {check.reason}")
    attributes = {"message": message} if tag == "skipped" else {"message": message, "type": str(check.word)}
    ET.SubElement(case, tag, attributes).text = _legal("\n".join([message, *evidence, *_samples(check)]))
    return case


def _tag(check: words.GateCheck) -> str | None:
    if check.word is GateWord.PASS:
        return None
    if not check.required:
        return "skipped"
    if check.word in {GateWord.REGRESSION, GateWord.INCONCLUSIVE}:
        return "failure"
    return "error"


def _numbers(check: words.GateCheck) -> Iterable[str]:
    one = check.compared
    if one is not None:
        yield f"scores: {words.scores_text(one)} ({words.answered_text(one, check.contexts)})"
        yield f"change, 95 % CI: {words.gate_change_text(one)} ({words.level_text(one, check.alpha_test)})"
        yield f"lost/gained: {words.lost_and_gained_text(one)}"
    if check.warning:
        yield f"warning: {check.warning}"


def _samples(check: words.GateCheck) -> Iterable[str]:
    for example in words.loss_examples(check):
        yield "\nlost:"
        yield from words.sample_lines(example)


def _legal(text: str) -> str:
    return _ILLEGAL.sub(REPLACEMENT, clean(text))
