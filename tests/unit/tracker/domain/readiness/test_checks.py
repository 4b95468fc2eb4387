"""Facts about device, model, disk and base -> findings."""

import re
from dataclasses import replace
from typing import Any

import pytest

from eval_jobs.records.preflight import EngineEnvironment, ModelFacts
from eval_jobs.types import ServeSpec
from tracker.domain.readiness.checks import base_finding, engine_findings, model_findings
from tracker.domain.readiness.finding import Level
from tracker.domain.readiness.surroundings import disk_finding

GPU = EngineEnvironment(
    python="p", version="0.31.0", torch="2.12", on_cpu=False, memory_bytes=80 << 30, free_share=0.95
)
MODEL = ModelFacts(
    where="/m", weights_bytes=16 << 30, dtype="bfloat16", max_length=512, tokenizer="/m", has_chat_template=True
)


@pytest.mark.parametrize(
    ("engine", "model", "level", "message"),
    [
        ({"free_share": 0.5}, {}, Level.WARNING, "50% of the memory is free, and an engine needs 90%"),
        ({"torch": "2.12+cpu"}, {}, Level.WARNING, "this machine has a GPU, but PyTorch 2.12.cpu"),
        ({"version": "99.0"}, {}, Level.WARNING, "99.0"),
        ({"compute_capability": (7, 5)}, {}, Level.ERROR, "dtype is bfloat16, which this GPU does not support"),
        ({}, {"weights_bytes": 200 << 30}, Level.ERROR, "exceed the memory of"),
        ({}, {"dtype": "float32", "weights_bytes": 200 << 30}, Level.ERROR, "exceed the memory of"),
        ({}, {"dtype": "float32", "weights_bytes": 120 << 30}, None, ""),
        ({"compute_capability": (7, 5)}, {"dtype": "float16"}, None, ""),
        ({}, {}, None, ""),
    ],
)
def test_devices_are_checked_before_an_engine_starts(
    engine: dict[str, Any], model: dict[str, Any], level: Level | None, message: str
) -> None:
    environment, spec = replace(GPU, **engine), ServeSpec()
    findings = [*engine_findings(environment, spec), *model_findings(replace(MODEL, **model), environment, spec, ())]
    troubles = [one for one in findings if one.level is not Level.OK]
    assert [one.level for one in troubles] == ([] if level is None else [level])
    assert all(re.search(message, one.message) and one.hint for one in troubles)


@pytest.mark.parametrize(
    ("free_bytes", "copy_bytes", "level"),
    [(1 << 40, 0, Level.OK), (1 << 20, 0, Level.WARNING), (1 << 30, 2 << 30, Level.ERROR), (1 << 40, 2, Level.OK)],
)
def test_the_disk_must_hold_a_copy_of_a_checkpoint(free_bytes: int, copy_bytes: int, level: Level) -> None:
    assert disk_finding("/state", free_bytes=free_bytes, copy_bytes=copy_bytes).level is level


def test_a_base_model_of_the_hub_must_be_in_the_cache_of_an_engine_that_is_offline() -> None:
    offline, online = (base_finding("org/base", "/a", is_path=False, is_offline=one) for one in (True, False))
    assert (offline.level, "hf download org/base" in offline.hint, online.level) == (Level.ERROR, True, Level.OK)


@pytest.mark.parametrize(
    ("head_size", "sizes", "version", "levels"),
    [
        (16, (32, 64), "0.32.0", [Level.ERROR]),
        (16, (32, 64), "99.0.0", [Level.WARNING]),
        (16, (), "0.32.0", []),
        (32, (32, 64), "0.32.0", []),
        (None, (32, 64), "0.32.0", []),
    ],
)
def test_a_head_size_is_refused_only_where_a_tested_vllm_is_known_to_refuse_it(
    head_size: int | None, sizes: tuple[int, ...], version: str, levels: list[Level]
) -> None:
    model = ModelFacts(
        where="/m", weights_bytes=1, dtype="", max_length=9, tokenizer="/m", has_chat_template=True, head_size=head_size
    )
    engine = EngineEnvironment(python="p", version=version, torch="2", on_cpu=True, memory_bytes=9, head_sizes=sizes)
    findings = [one for one in model_findings(model, engine, ServeSpec(), ()) if "heads" in one.message]
    assert [one.level for one in findings] == levels
    assert all(one.hint for one in findings)
