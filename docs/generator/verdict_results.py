"""False alarms and losses found, by detector, from the tables of benchmarks/verdicts/RESULTS.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.verdicts.campaign import NULLS
from benchmarks.verdicts.detector import DEFAULT

RESULTS = Path(__file__).parents[2] / "benchmarks" / "verdicts" / "RESULTS.md"
LIMIT = 5.0
"""False alarm rate in % that a detector must keep: `policy.alpha`."""
LOSSES, SIZES = (2, 3, 5), (500, 1_319, 14_042)
"""In points; in samples of the benchmark."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "": {DEFAULT: "tracker"},
    "Statistical tests": {
        "e-detector": "CUSUM of evidence",
        "lond": "McNemar, LOND",
        "bonferroni": "McNemar, Bonferroni",
        "bh": "McNemar, Benjamini-Hochberg",
        "mcnemar": "McNemar at .05",
    },
    "Rules of thumb": {
        "unpaired_previous": "2 SE below the previous",
        "unpaired_best": "2 SE below the best",
        "5pt_previous": "5 points below the previous",
        "5pt_best": "5 points below the best",
        "2pt_best": "2 points below the best",
    },
}


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Healthy runs with a false alarm, in %, with the 95 % confidence interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Detector:
    """One row of the picture."""

    label: str
    alarms: tuple[Rate, ...]
    """By kind of healthy runs."""
    found: tuple[float, ...]
    """Losses found, in %: by loss, then by size."""

    @property
    def keeps_limit(self) -> bool:
        """Whether false alarms exceed the limit by no more than chance explains, in every kind of runs."""
        return all(rate.low <= LIMIT for rate in self.alarms)


def measured_detectors() -> dict[str, list[Detector]]:
    """Return the detectors of each group; KeyError if the table lacks one of their cells."""
    cells = detector_table(RESULTS.read_text(encoding="utf-8"))
    groups = {}
    for heading, labels in GROUPS.items():
        groups[heading] = [_detector(cells, name, label) for name, label in labels.items()]
    return groups


def detector_table(page: str) -> dict[tuple[str, str], str]:
    """Return the cells, by row and detector, of the first table with a column of the shipped engine.

    Raises:
        ValueError: There is no such table.
    """
    start = re.search(rf"^\| +\| {DEFAULT}\b", page, re.MULTILINE)
    if start is None:
        raise ValueError(f"no table with a column {DEFAULT}")
    lines = page[start.start() :].partition("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], name): cell for row in rows for name, cell in zip(header[1:], row[1:], strict=True)}


# --- private


def _detector(cells: Mapping[tuple[str, str], str], name: str, label: str) -> Detector:
    alarms = []
    for kind in NULLS:
        share, low, high = map(float, re.findall(r"[\d.]+", cells[f"FWER {kind}", name]))
        alarms.append(Rate(share=share, low=low, high=high))
    found = []
    for loss in LOSSES:
        found += [float(cells[f"drop{loss} n={size}", name].split()[0]) for size in SIZES]
    return Detector(label=label, alarms=tuple(alarms), found=tuple(found))
