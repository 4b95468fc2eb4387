"""Whether the data of a benchmark without local files can be had: from the caches, or from the hub."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from eval_jobs.evaluate.common.child_process import child_environment
from eval_jobs.evaluate.data.known_benchmarks import dataset_of
from eval_jobs.records.preflight import HubState
from eval_jobs.types import DatasetHub

CONNECT_TIMEOUT_S = 3.0
CACHES = ("HF_HOME", "HF_DATASETS_CACHE", "MODELSCOPE_CACHE", "EVALSCOPE_CACHE")
CACHE_DEPTH = 6
"""Levels of folders in the caches of ModelScope, Hugging Face and EvalScope above those of data sets."""


def hub_state(adapter: str, hub: DatasetHub, work_dir: Path) -> HubState:
    """Look for the data set of an EvalScope benchmark in the evaluator's caches, else contact the hub."""
    dataset = dataset_of(adapter) or adapter
    environment = child_environment(os.environ, work_dir, offline=False)
    url = hub_url(hub, environment)
    is_cached = any(_named(dataset, [Path(environment[name]).expanduser() for name in CACHES]))
    return HubState(dataset=dataset, url=url, is_cached=is_cached, is_reachable=is_cached or _is_reachable(url))


def hub_url(hub: DatasetHub, environment: Mapping[str, str]) -> str:
    """Return the address of a hub; the hubs' own variables take precedence. Pure."""
    if hub is DatasetHub.HUGGINGFACE:
        return environment.get("HF_ENDPOINT") or "https://huggingface.co"
    return f"https://{environment.get('MODELSCOPE_DOMAIN') or 'www.modelscope.cn'}"


def _is_reachable(url: str) -> bool:
    try:
        httpx.head(url, timeout=CONNECT_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return True


def _named(dataset: str, caches: list[Path]) -> Iterator[Path]:
    """Yield folders of the data set: the caches call it gsm8k, gsm8k-HASH or datasets--OWNER--gsm8k."""
    name = dataset.rpartition("/")[2].lower()
    for cache in caches:
        for folder, below, _ in os.walk(cache):
            if len(Path(folder).relative_to(cache).parts) >= CACHE_DEPTH:
                below.clear()
            for found in below:
                if found.lower().endswith(name) or f"{name}-" in found.lower():
                    yield Path(folder) / found
