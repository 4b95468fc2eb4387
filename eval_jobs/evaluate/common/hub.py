"""Whether the data of a benchmark without local files can be had: from the caches, or from the hub."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx

from eval_jobs.evaluate.common.child_process import child_environment
from eval_jobs.evaluate.data.known_benchmarks import dataset_of
from eval_jobs.records.preflight import HubState
from eval_jobs.types import DatasetHub

TIMEOUT_S = 1.5
"""Of each part of a request: the doctor answers within seconds."""
CACHES = ("HF_HOME", "HF_DATASETS_CACHE", "MODELSCOPE_CACHE", "EVALSCOPE_CACHE")
CACHE_DEPTH = 6
"""Levels of folders in the caches of ModelScope, Hugging Face and EvalScope above those of data sets."""


def hub_state(adapter: str, hub: DatasetHub, work_dir: Path, *, reachable: Callable[[str], bool]) -> HubState:
    """Look for the data set of an EvalScope benchmark in the evaluator's caches; `reachable` contacts a hub."""
    dataset = dataset_of(adapter) or adapter
    environment = child_environment(os.environ, work_dir, offline=False)
    url = hub_url(hub, environment)
    is_cached = any(_named(dataset, [Path(environment[name]).expanduser() for name in CACHES]))
    return HubState(dataset=dataset, url=url, is_cached=is_cached, is_reachable=is_cached or reachable(url))


def hub_url(hub: DatasetHub, environment: Mapping[str, str]) -> str:
    """Return the address of a hub; the hubs' own variables take precedence. Pure."""
    if hub is DatasetHub.HUGGINGFACE:
        return environment.get("HF_ENDPOINT") or "https://huggingface.co"
    return f"https://{environment.get('MODELSCOPE_DOMAIN') or 'www.modelscope.cn'}"


def is_reachable(url: str) -> bool:
    """Return whether a hub responds."""
    try:
        httpx.head(url, timeout=TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return True


def _named(dataset: str, caches: list[Path]) -> Iterator[Path]:
    """Yield folders of the data set: the caches call it gsm8k, gsm8k-HASH or datasets--OWNER--gsm8k."""
    name = re.escape(dataset.rpartition("/")[2].lower())
    wanted = re.compile(rf"(?:datasets--.*--|.*___)?{name}(?:-[0-9a-f]{{8,}})?")
    for cache in caches:
        for folder, below, _ in os.walk(cache):
            if len(Path(folder).relative_to(cache).parts) >= CACHE_DEPTH:
                below.clear()
            for found in below:
                if wanted.fullmatch(found.lower()):
                    yield Path(folder) / found
