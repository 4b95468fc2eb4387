"""Which questions share a context, and which only look as if they did."""

from collections import Counter
from dataclasses import replace

import pytest

from eval_jobs.contexts import PREFIX_CHARS, AskedSample, document_id_of, shared_contexts, with_contexts
from eval_jobs.types import SampleScore, SampleStatus

SHOTS = "Read the text and answer.\n\n" + "Text: a worked example. Answer: 4\n\n" * 20
TEXTS = [f"{number} {'It was a dark and stormy night. ' * 10}" for number in range(4)]


def asked(text: str, number: int, *, subset: str = "all", **known: str) -> AskedSample:
    return AskedSample(subset=subset, prompt=f"{SHOTS}{text}\n\nWhat about {number}?", **known)


READING = [asked(TEXTS[number // 3], number) for number in range(12)]
ALONE = [asked(f"{number}: {'unlike any other. ' * 20}", number) for number in range(5)]


def groups(questions: list[AskedSample]) -> list[int]:
    """Sizes of the found clusters, the largest first."""
    counts = Counter(filter(None, shared_contexts(questions)))
    return sorted(counts.values(), reverse=True)


@pytest.mark.parametrize(
    ("questions", "found"),
    [
        pytest.param(READING, [3, 3, 3, 3], id="four passages of three questions"),
        pytest.param([*READING[:3], *ALONE], [3], id="one passage among lone questions"),
        pytest.param(ALONE, [], id="worked examples that all prompts begin with"),
        pytest.param([*ALONE, *ALONE], [], id="repeats of lone questions"),
        pytest.param([*READING, *READING], [6, 6, 6, 6], id="repeats of questions on passages"),
        pytest.param(READING[:3], [], id="one passage for all"),
        pytest.param([asked("Short. ", number) for number in range(9)], [], id="short prefixes"),
        pytest.param(
            [replace(one, subset=f"subject {at % 2}", prompt=f"{at % 2}{one.prompt}") for at, one in enumerate(ALONE)],
            [],
            id="examples of each subset",
        ),
        pytest.param([asked("", at, document=f"document:{at // 2}") for at in range(6)], [2, 2, 2], id="document ids"),
        pytest.param([asked("", at, document=f"document:{at}") for at in range(6)], [], id="ids of questions"),
        pytest.param(
            [replace(one, document=f"document:{at // 6}") for at, one in enumerate(READING)], [6, 6], id="both"
        ),
        pytest.param([replace(one, declared=f"{at // 4}") for at, one in enumerate(READING)], [4, 4, 4], id="declared"),
        pytest.param([replace(one, declared="all") for one in ALONE], [5], id="declared as one"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_questions_that_share_a_context_are_found(questions: list[AskedSample], found: list[int]) -> None:
    assert groups(questions) == found


def test_a_cluster_has_one_name_in_whatever_order_and_beside_whatever_else() -> None:
    names = dict(zip(READING, shared_contexts(READING), strict=True))
    more = [*ALONE, *reversed(READING)]
    assert dict(zip(more, shared_contexts(more), strict=True)) == names | dict.fromkeys(ALONE, "")
    assert all(name.startswith("passage:") for name in names.values())


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"example_id": "high4.txt", "passage": "x" * 900}, "document:high4.txt"),
        ({"passage": "x" * PREFIX_CHARS}, document_id_of({"article": "x" * PREFIX_CHARS})),
        ({"context": "natural image"}, ""),
        ({"context": None, "passage": 7, "id": "1"}, ""),
    ],
)
def test_a_document_is_known_by_its_id_or_its_text_and_not_by_a_label(fields: dict[str, object], found: str) -> None:
    assert document_id_of(fields) == found


def test_samples_get_the_clusters_that_their_prompts_show() -> None:
    samples = [
        SampleScore(sample_id=f"s{at % 12}", subset="all", score=1.0, status=SampleStatus.SCORED, prompt=one.prompt)
        for at, one in enumerate([*READING, *READING])
    ]
    assert tuple(sample.cluster_id for sample in with_contexts(samples)) == shared_contexts([*READING, *READING])
