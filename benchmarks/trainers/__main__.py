"""Which trainers work with the tracker: a table with today's date.

    python -m benchmarks.trainers [--only NAME] [--write]        or: make test-trainers

Each trainer gets an environment of its own in build/versions, trains a tiny model for some 200 steps with rotation, is
killed in the middle of a save and resumed. `tracker init` and `tracker watch` run beside it with no setting but the
questions. --write puts the table into docs/works-with.md. Exit code 1: something does not work.
"""

import argparse
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.trainers.beside import COLUMNS, Result, watched_run
from benchmarks.trainers.setups import SETUPS
from benchmarks.versions.environments import CannotInstall
from tests.requires import PROJECT

PAGE = PROJECT / "docs" / "works-with.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def main() -> int:
    """Print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only trainers whose name contains this")
    parser.add_argument("--write", action="store_true", help="write the table into docs/works-with.md")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # `&` of a shell makes children ignore it: `tracker watch`
    rows, worst = [], 0
    for setup in SETUPS:
        if options.only.lower() not in setup.name.lower():
            continue
        try:
            result = watched_run(setup)
        except CannotInstall as error:
            result = Result(name=f"{setup.name}: not installable here: {error}", is_good=False)
        rows.append(result.row())
        worst = max(worst, int(not result.is_good))
        print(rows[-1], flush=True)
    if options.write:
        _write(PAGE, rows)
    return worst


def _write(page: Path, rows: list[str]) -> None:
    head = f"| Run on {datetime.now(UTC):%Y-%m-%d} | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}\n"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(before + BEGIN + head + "".join(f"{row}\n" for row in rows) + END + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
