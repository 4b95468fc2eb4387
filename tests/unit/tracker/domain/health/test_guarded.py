"""How a guarded command ended, in words and as the exit code of a shell."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tracker.domain.health.guarded import GuardedRun, ending_text, exit_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = GuardedRun(run="r", command=("train",), log="/state/1.log", machine="m", pid=7, start_time=1, started_at=NOW)


def test_an_ending_is_told_with_its_cause_and_the_exit_code_of_a_shell() -> None:
    endings: dict[str, tuple[int | None, int | None, int]] = {
        "has not ended": (None, None, 0),
        "finished": (0, None, 0),
        "failed with exit code 3": (3, None, 3),
        "failed with exit code 128": (128, None, 128),
        "failed with exit code 137, as a shell reports SIGKILL": (137, None, 137),
        "failed with exit code 255": (255, None, 255),
        "was ended by SIGTERM": (None, 15, 143),
        "was ended by signal 40": (None, 40, 168),
    }
    for text, (exit_code, signal, shell_code) in endings.items():
        found = replace(RUNNING, exit_code=exit_code, signal=signal)
        assert (ending_text(found), found.shell_code) == (text, shell_code)
        assert found.is_finished == (text == "finished")


def test_the_command_of_processes_is_the_newest_before_them_on_this_machine_that_ended_after_them() -> None:
    seen_s = NOW.timestamp() + 100
    ended = replace(RUNNING, start_time=500, ended_at=NOW + timedelta(hours=1), exit_code=3)
    earlier = replace(RUNNING, start_time=100, ended_at=NOW + timedelta(hours=1), exit_code=7)
    killed = replace(ended, exit_code=None, signal=9)
    cases = [
        ([earlier, ended], 3),
        ([killed], -9),
        ([], None),
        ([replace(ended, start_time=700)], None),
        ([replace(ended, machine="another boot")], None),
        ([replace(ended, ended_at=NOW + timedelta(seconds=50))], None),
        ([replace(ended, ended_at=None, exit_code=None)], None),
    ]
    for runs, code in cases:
        assert exit_of(runs, "m", 600.0, seen_s) == code, runs


def test_a_time_that_was_counted_in_seconds_still_is_that_of_its_command() -> None:
    ticks = next(number for number in range(100_000, 200_000) if (number / 100) * 100 < number)
    ended = replace(RUNNING, start_time=ticks, ended_at=NOW + timedelta(hours=1), exit_code=3)
    for began_ticks in ((ticks / 100) * 100, ticks - 1.0, ticks + 1.0):
        assert exit_of([ended], "m", began_ticks, NOW.timestamp()) == 3
    assert exit_of([ended], "m", ticks - 2.0, NOW.timestamp()) is None
