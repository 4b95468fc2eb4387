"""Everything that a hostile neighbour may do, from seeds, and the load that no neighbour should be: one line each.

python -m benchmarks.hostile --seed 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks.hostile import endpoints, many, queue, stores, trees


def main() -> None:
    """Run all parts and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=("trees", "endpoints", "stores", "many", "queue"), action="append")
    arguments = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {
        "trees": partial(trees.measure, arguments.seed, 2000),
        "endpoints": partial(endpoints.measure, arguments.seed, 500),
        "stores": partial(stores.measure, arguments.seed, 200),
        "many": partial(many.measure_many, 10_000),
        "queue": partial(queue.measure, 500, 8),
    }
    for part in arguments.part or parts:
        numbers = {name: value for name, value in asdict(parts[part]()).items() if value not in ((), [])}
        sys.stdout.write(f"{part}: " + ", ".join(f"{name} {_shown(value)}" for name, value in numbers.items()) + "\n")
        sys.stdout.flush()


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
