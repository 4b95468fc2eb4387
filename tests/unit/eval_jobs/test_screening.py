"""Which samples are asked first: the same everywhere, fair to subsets, whole clusters."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Screen

SUBSETS = st.sampled_from(["algebra", "law", "virology"])
CLUSTERS = st.sampled_from(["", "", "", "p1", "p2", "p3"])
QUESTIONS = st.lists(
    st.tuples(st.integers(0, 10_000), SUBSETS, CLUSTERS), min_size=1, max_size=120, unique_by=lambda row: row[0]
).map(lambda rows: [Question(key=f"{key:x}", subset=s, cluster=c and f"{s} {c}") for key, s, c in rows])
SCREENS = st.builds(Screen, samples=st.integers(0, 150), share=st.floats(0, 1))


@given(QUESTIONS, SCREENS, st.randoms())
def test_the_order_of_the_questions_and_their_repeats_do_not_matter(
    questions: list[Question], screen: Screen, order: object
) -> None:
    shuffled = [*questions, *questions[:3]]
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert screen_of(shuffled, screen) == screen_of(questions, screen)


@given(QUESTIONS, SCREENS)
def test_a_cluster_is_asked_whole_or_not_at_all(questions: list[Question], screen: Screen) -> None:
    chosen = screen_of(questions, screen)
    for cluster in {q.cluster for q in questions if q.cluster}:
        assert len({q.key in chosen for q in questions if q.cluster == cluster}) == 1


@given(QUESTIONS.map(lambda rows: [Question(key=q.key, subset=q.subset) for q in rows]), SCREENS)
def test_without_clusters_the_screen_has_its_size_and_every_subset_its_share(
    questions: list[Question], screen: Screen
) -> None:
    chosen = screen_of(questions, screen)
    wanted = min(len(questions), max(screen.samples, math.ceil(screen.share * len(questions))))
    assert len(chosen) == wanted
    sizes, taken = Counter(q.subset for q in questions), Counter(q.subset for q in questions if q.key in chosen)
    assert all(abs(taken[s] - wanted * sizes[s] / len(questions)) < 1 for s in sizes)


@given(QUESTIONS.map(lambda rows: [Question(key=q.key, subset="one") for q in rows]), st.integers(0, 60))
def test_a_larger_screen_holds_a_smaller_one(questions: list[Question], samples: int) -> None:
    assert screen_of(questions, Screen(samples=samples)) <= screen_of(questions, Screen(samples=samples + 5))


def test_the_choice_is_the_same_for_all_time() -> None:
    """Another choice would make the screens of a run that is under way incomparable with its earlier ones."""
    questions = [Question(key=f"q{i}", subset="ab"[i % 2]) for i in range(20)]
    assert sorted(screen_of(questions, Screen(samples=6))) == ["q0", "q1", "q12", "q15", "q2", "q5"]
