"""Scoring of `exact` and `choice` answers. Pure. A change here must increase `identity.SCORING_VERSION`."""

import re
from collections.abc import Iterable

from eval_jobs.evaluate.data.rows import LETTERS, normalized, plain


def exact_score(answer: str, targets: Iterable[str]) -> float:
    """Return 1.0 if the answer equals one of the targets, else 0.0.

    Compared after Unicode NFC, with whitespace stripped and inner whitespace replaced by one space. Case-sensitive.
    """
    given = plain(answer)
    return float(any(given == plain(target) for target in targets))


def chosen_letter(answer: str, n_choices: int) -> str:
    """Return the letter that an answer to a `choice` question chooses, or "" if it names none or several.

    Tried in this order: the last `answer: X` or `answer is X`; an answer that begins with the letter (`B`, `(b)`,
    `B. red`); then the only letter called option or choice, the only one in brackets or bold, the only capital that
    stands alone (`A` and `I` are words too, so they do not count there).
    """
    letters = set(LETTERS[:n_choices])
    text = normalized("NFKC", answer).strip()
    stated = [letter for letter in map(str.upper, _STATED.findall(text)) if letter in letters]
    if stated:
        return stated[-1]
    first = _FIRST.match(text)
    if first is not None and first.group(1).upper() in letters and not set(_MARKED.findall(text)) - set(first.group(1)):
        return first.group(1).upper()
    for pattern in (_NAMED, _MARKED, _ALONE):
        found = set(map(str.upper, pattern.findall(text))) & letters
        if found:
            if len(found) == 1:
                return found.pop()
            return ""
    return ""


_WRAP = r"[\s\"'*_`$({\[]*(?:\\boxed\{|\\text\{)*"
_END = r"(?![A-Za-z0-9'])"
_STATED = re.compile(rf"(?i:\banswer[\s\"'*_]*(?:is|:|=)+\s*(?:option|choice)?){_WRAP}([A-Za-z]){_END}")
_FIRST = re.compile(r"[\"'*_`$(\[]*([A-Za-z])(?:[\"'*_`$)\]]*$|[\"'*_`$]*[).:\],]|[\"'*_`$)\]]*\s*\n)")
_NAMED = re.compile(rf"(?i:\b(?:option|choice)){_WRAP}([A-Z]){_END}")
_MARKED = re.compile(r"(?:\(|\[|\*\*|\\boxed\{)\s*([A-Z])\s*(?:\)|\]|\*\*|\}|[.):])")
_ALONE = re.compile(rf"(?<![A-Za-z0-9'])([B-HJ-Z]){_END}")
