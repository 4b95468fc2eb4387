import os
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from tests.forking import FRESH


def test_processes_are_forked_from_one_without_threads() -> None:
    answers: SimpleQueue[int] = FRESH.SimpleQueue()
    process = FRESH.Process(target=_count_threads_of_parent, args=(answers,))
    process.start()
    assert answers.get() == 1
    process.join()


def _count_threads_of_parent(answers: SimpleQueue[int]) -> None:
    answers.put(len([*Path(f"/proc/{os.getppid()}/task").iterdir()]))
