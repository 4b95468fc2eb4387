"""What happens to a run: how its levels rise and fall, what arrives late, what is accepted and asked again."""

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True, kw_only=True)
class Course:
    """What happens to a run."""

    levels: Mapping[str, tuple[float, ...]]
    """Of each benchmark at each checkpoint."""
    late: tuple[int, ...]
    """By how many places each checkpoint arrives later."""
    longer: tuple[bool, ...]
    """Whether the answers may be longer, which is another series."""
    accepted: tuple[int, ...] = ()
    """After which arrivals a level is accepted."""
    again: tuple[int, ...] = ()
    """Checkpoints that are asked again at the end, with the other settings."""
    at_last: tuple[tuple[int, bool], ...] = ()
    """Checkpoints that are asked again after that, and whether with longer answers."""
    seed: int


def courses() -> st.SearchStrategy[Course]:
    level = st.sampled_from((0.0, 0.1, 0.3, 0.35, 0.6, 0.65, 0.9, 0.95))
    stretch = st.tuples(level, st.integers(1, 4))

    def of_benchmarks(count: int) -> st.SearchStrategy[dict[str, tuple[float, ...]]]:
        one = st.lists(stretch, min_size=4, max_size=6).map(
            lambda parts: tuple(level for level, length in parts for _ in range(length))[:12]
        )
        return st.fixed_dictionaries({f"b{at}": one for at in range(count)})

    levels = st.integers(1, 3).flatmap(of_benchmarks)
    often = st.sampled_from((0, 0, 0, 0, 2, 4))
    switched = st.sampled_from(((False,) * 12, (False,) * 12, (*(False,) * 6, True, True, *(False,) * 4)))
    return st.builds(
        Course,
        levels=levels,
        late=st.tuples(*[often] * 12),
        longer=switched,
        accepted=st.lists(st.integers(6, 11), max_size=1).map(tuple),
        again=st.lists(st.integers(0, 11), max_size=5, unique=True).map(tuple),
        seed=st.integers(0, 999),
    )


_EARLIER_AND_TOGETHER = Course(
    levels={"b0": (0.35, 0.0, 0.0, 0.0), "b1": (0.65,) * 4, "b2": (0.35, 0.0, 0.0, 0.0)},
    late=(0, 2, 0, 0),
    longer=(False,) * 4,
    accepted=(),
    seed=0,
)
"""The same late result moves the onset of two losses and shows that all benchmarks fell together."""
_ONE_ONSET_WITH_TWO_SETTINGS = Course(
    levels={"b0": (0.0,) * 5, "b1": (0.0,) * 5, "b2": (0.35, 0.35, 0.0, 0.0, 0.0)},
    late=(0,) * 5,
    longer=(False,) * 5,
    accepted=(),
    again=(0, 2),
    seed=0,
)


_LATE_WITH_OTHER_SETTINGS = Course(
    levels={"b0": (0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 0.0)},
    late=(0,) * 7,
    longer=(False,) * 7,
    again=(0, 1, 2, 4, 3),
    seed=0,
)
_LOST_TOGETHER_AND_ASKED_AGAIN = Course(
    levels={"b0": (0.9,) * 4 + (0.0,) * 3, "b1": (0.9,) * 4 + (0.0,) * 3, "b2": (0.3,) * 3 + (0.0,) * 4},
    late=(0,) * 7,
    longer=(False,) * 7,
    again=(5, 3),
    seed=0,
)
"""Other settings have a checkpoint from before the loss, and not the newest one."""
_ACCEPTED_WHILE_ASKED_AGAIN = Course(
    levels={"b0": (0.0,) * 4 + (0.6,) * 4 + (0.0,) * 2, "b1": (0.0,) * 2 + (0.6,) * 4 + (0.0,) * 4},
    late=(0,) * 10,
    longer=(False,) * 10,
    accepted=(10,),
    again=(0,),
    seed=0,
)
"""An accepted level changes the noise, and so the interval of the loss of another benchmark with earlier settings."""
_LATE_WITH_A_SMALL_CHANGE = Course(
    levels={"b1": (0.95,) * 4 + (0.9,) * 5, "b0": (0.6,) * 4 + (0.0,) * 5},
    late=(0, 0, 0, 0, 0, 0, 4, 0, 0),
    longer=(False,) * 9,
    seed=1,
)
"""A late result changes the last digits of the newest verdict only."""

_RECOVERED_EARLIER = Course(
    levels={"b0": (0.0,) * 9, "b1": (0.0,) * 9, "b2": (0.0, 0.95, 0.0, 0.0, 0.0, *(0.9,) * 4)},
    late=(0,) * 9,
    longer=(*(False,) * 6, True, True, False),
    again=(0, 1, 6),
    seed=0,
)
"""A loss ended at the newest checkpoint; a result that comes late shows its end before that."""
_BACK_FOR_ONE_CHECKPOINT = Course(
    levels={
        "b0": (0.0,) * 4 + (0.6,) * 4,
        "b1": (0.0, 0.0, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0),
        "b2": (*(0.6,) * 4, 0.0, 0.0, 0.6, 0.0),
    },
    late=(*(0,) * 6, 2, 0),
    longer=(False,) * 8,
    seed=0,
)
"""The checkpoint that comes late is back, so what began before it is not what the newest one lost."""
_CORRECTED_AND_BACK = Course(
    levels={"b0": (0.0,) * 8, "b1": (0.0, 0.65, 0.65, 0.0, 0.0, 0.6, 0.6, 0.6), "b2": (0.0,) * 8},
    late=(0, 0, 0, 4, 0, 4, 0, 0),
    longer=(False,) * 8,
    seed=1,
)
"""What was corrected was no loss, so no checkpoint recovers from it."""
_LASTS_IN_PART = Course(
    levels={
        "b1": (*(0.95,) * 4, 0.3, 0.3, 0.9, *(0.65,) * 4, 0.95),
        "b2": (*(0.95,) * 4, 0.3, 0.3, 0.9, *(0.65,) * 4, 0.95),
        "b0": (*(0.6,) * 4, *(0.35,) * 4, 0.6, 0.1, 0.1, 0.65),
    },
    late=(0, 0, 0, 2, 4, 0, 0, 0, 0, 2, 0, 0),
    longer=(False,) * 12,
    again=(5, 1, 4, 0, 2),
    seed=247,
)
"""Of what a late checkpoint shows, a part lasts."""

_OPENED_BY_THE_NEWEST = Course(
    levels={
        "b0": (0.0, 0.0, 0.6, 0.0, 0.0, 0.0, 0.0),
        "b2": (0.0, 0.0, 0.35, 0.0, 0.0, 0.0, 0.0),
        "b1": (0.6, 0.95, 0.95, 0.65, 0.65, 0.65, 0.0),
    },
    late=(*(0,) * 5, 2, 0),
    longer=(False,) * 7,
    seed=190,
)
"""What the newest checkpoint opened, it opens again where its own verdict says."""
_CORRECTED_ONE_AFTER_THE_OTHER = Course(
    levels={
        "b0": (0.0,) * 7,
        "b1": (*(0.6,) * 5, 0.0, 0.3),
        "b2": (0.0, 0.6, 0.1, 0.1, 0.1, 0.3, 0.3),
    },
    late=(0, 0, 0, 4, 0, 2, 0),
    longer=(False,) * 7,
    seed=244,
)
"""Without the loss that is corrected first, another one is not shown any more."""
_RECOVERED_BEFORE_IT_WAS_ACCEPTED = Course(
    levels={"b0": (0.0,) * 9, "b1": (*(0.9,) * 4, 0.0, 0.0, 0.95, 0.95, 0.0), "b2": (0.0,) * 9},
    late=(0,) * 9,
    longer=(*(False,) * 6, True, True, False),
    accepted=(10,),
    again=(0, 1, 2, 7),
    seed=0,
)
"""A result that comes late shows that an accepted loss was over before."""
_BEGINS_LATER_THAN_IT_DID = Course(
    levels={"b0": (0.0,) * 8, "b2": (0.65, 0.65, 0.65, 0.9, 0.9, 0.6, 0.6, 0.0), "b1": (0.0,) * 8},
    late=(0,) * 8,
    longer=(*(False,) * 6, True, True),
    again=(3, 0),
    seed=332,
)
"""With one result more, the loss begins at a later checkpoint, and the one before it names none."""

_LASTS_ALONE = Course(
    levels={"b0": (0.1, 0.0, 0.35, 0.0), "b1": (0.1, 0.0, 0.0, 0.0), "b2": (0.35, 0.0, 0.0, 0.0)},
    late=(0,) * 4,
    longer=(False,) * 4,
    seed=0,
)
"""The loss of all benchmarks together ends, and that of one of them lasts."""

_BEGINS_ELSEWHERE_BY_THE_NEWEST = Course(
    levels={"b1": (*(0.3,) * 3, 0.6, 0.6, *(0.3,) * 3, *(0.0,) * 4), "b0": (0.0,) * 12},
    late=(*(0,) * 10, 2, 0),
    longer=(*(False,) * 6, True, True, *(False,) * 4),
    seed=0,
)
"""With a late checkpoint, the newest shows that the loss begins elsewhere: the late one names none."""

FOUND = (
    _BEGINS_ELSEWHERE_BY_THE_NEWEST,
    _LASTS_ALONE,
    _BEGINS_LATER_THAN_IT_DID,
    _RECOVERED_BEFORE_IT_WAS_ACCEPTED,
    _CORRECTED_ONE_AFTER_THE_OTHER,
    _OPENED_BY_THE_NEWEST,
    _LASTS_IN_PART,
    _CORRECTED_AND_BACK,
    _BACK_FOR_ONE_CHECKPOINT,
    _RECOVERED_EARLIER,
    _LATE_WITH_A_SMALL_CHANGE,
    _EARLIER_AND_TOGETHER,
    _ONE_ONSET_WITH_TWO_SETTINGS,
    _LATE_WITH_OTHER_SETTINGS,
    _LOST_TOGETHER_AND_ASKED_AGAIN,
    _ACCEPTED_WHILE_ASKED_AGAIN,
)
"""Courses that once found a contradiction."""
