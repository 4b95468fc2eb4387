"""Rules of the Engine port, over the fake, a remote endpoint, and vLLM and SGLang on stand-ins for them.

The real vLLM goes through the same rules in tests/integration/test_vllm.py, on one start for all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eval_jobs.errors import ServeError, ServerDied, TrackerError
from eval_jobs.host.clock import SystemClock
from eval_jobs.ports import Engine
from eval_jobs.serve.remote import RemoteEngine
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.serve.selection import EngineByKind
from eval_jobs.serve.sglang.engine import SglangEngine
from eval_jobs.types import Between, Checkpoint, Endpoint, EngineInfo, EngineKind, ServeSpec
from tests.contract.engine_rules import check_service, nothing_to_show
from tests.fakes import sglang_stand_in
from tests.fakes.engine import FakeEngine
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.vllm_stand_in import write_interpreter
from tests.tiny_model import checkpoint_record, write_checkpoint


@dataclass(frozen=True, kw_only=True)
class Case:
    """One adapter, and settings under which it works and under which it cannot."""

    engine: Engine
    spec: ServeSpec
    broken: ServeSpec
    checkpoint: Checkpoint
    another: Checkpoint
    failing: Checkpoint
    """With `broken`, serving this one raises."""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(model="tiny") as server:
        yield server


@pytest.fixture(params=["fake", "remote", "vllm", "sglang", "by kind"])
def case(request: pytest.FixtureRequest, tmp_path: Path, server: OpenAIServer) -> Iterator[Case]:
    stand_in = write_interpreter(tmp_path)
    local = ServeSpec(python=str(stand_in))
    local_broken = ServeSpec(python=str(stand_in), args=("--stand-in", "die"))
    sglang = ServeSpec(engine=EngineKind.SGLANG, python=str(sglang_stand_in.write_interpreter(tmp_path)))
    sglang_broken = replace(sglang, args=("--stand-in", "die"))
    remote = ServeSpec(engine=EngineKind.REMOTE, base_url=server.base_url, model="tiny")
    remote_broken = ServeSpec(engine=EngineKind.REMOTE, base_url=server.base_url, model="somebody-else")
    build: dict[str, Callable[[], tuple[Engine, ServeSpec, ServeSpec]]] = {
        "fake": lambda: (_fake(server), local, local_broken),
        "remote": lambda: (RemoteEngine(SystemClock()), remote, remote_broken),
        "vllm": lambda: (VllmEngine(tmp_path / "work", SystemClock()), local, local_broken),
        "sglang": lambda: (SglangEngine(tmp_path / "work", SystemClock()), sglang, sglang_broken),
        "by kind": lambda: (EngineByKind(tmp_path / "work", SystemClock()), local, remote_broken),
    }
    engine, spec, broken = build[request.param]()
    folder = write_checkpoint(tmp_path / "checkpoint")
    other = write_checkpoint(tmp_path / "another", seed=1)
    yield Case(
        engine=engine,
        spec=spec,
        broken=broken,
        checkpoint=checkpoint_record(folder, step=100),
        another=checkpoint_record(other, step=200),
        failing=checkpoint_record(folder, step=666),
    )
    engine.close()


def test_inside_the_context_the_endpoint_serves_the_model_it_names(case: Case) -> None:
    check_service(case.engine, case.checkpoint, case.spec)


def test_checkpoints_are_served_one_after_another(case: Case) -> None:
    for checkpoint in (case.checkpoint, case.another, case.checkpoint):
        check_service(case.engine, checkpoint, case.spec)


def test_an_error_inside_the_context_comes_out_and_the_next_checkpoint_is_served(case: Case) -> None:
    with (
        pytest.raises(LookupError, match="ours"),
        case.engine.serving(case.checkpoint, case.spec, progress=nothing_to_show),
    ):
        raise LookupError("ours")
    check_service(case.engine, case.another, case.spec)


def test_a_start_that_fails_says_what_to_do_and_leaves_the_engine_usable(case: Case) -> None:
    with (
        pytest.raises(ServeError) as caught,
        case.engine.serving(case.failing, case.broken, progress=nothing_to_show),
    ):
        pytest.fail("it must not be served")
    assert isinstance(caught.value, TrackerError)
    assert caught.value.message
    assert caught.value.hint
    check_service(case.engine, case.checkpoint, case.spec)


def test_between_two_services_it_may_rest_as_often_as_it_is_told_to(case: Case) -> None:
    case.engine.rest()
    for between in Between:
        for checkpoint in (case.checkpoint, case.another):
            check_service(case.engine, checkpoint, replace(case.spec, between=between))
            case.engine.rest()
            case.engine.rest()


def test_after_a_close_checkpoints_are_served_as_before(case: Case) -> None:
    for _ in range(2):
        check_service(case.engine, case.checkpoint, case.spec)
        case.engine.close()
    case.engine.rest()


def test_two_services_of_one_checkpoint_are_of_the_same_weights(case: Case) -> None:
    infos = []
    for checkpoint in (case.checkpoint, case.another, case.checkpoint):
        with case.engine.serving(checkpoint, case.spec, progress=nothing_to_show) as endpoint:
            infos.append(endpoint.info)
    first, other, again = (info.canaries for info in infos)
    assert again == first
    assert other != first or not first, "an engine that asks fixed prompts gets other answers from other weights"
    assert all(info.load_reason for info in infos if info.name == "vllm")


def test_the_cpu_time_that_was_used_is_not_known_or_never_shrinks(case: Case) -> None:
    told = [case.engine.used_cpu_s()]
    for checkpoint in (case.checkpoint, case.another):
        check_service(case.engine, checkpoint, case.spec)
        told.append(case.engine.used_cpu_s())
    case.engine.close()
    told.append(case.engine.used_cpu_s())
    known = [used_s for used_s in told if used_s is not None]
    assert len(known) in (0, len(told))
    assert known == sorted(known)


def test_closing_twice_and_without_any_service_is_harmless(case: Case) -> None:
    case.engine.close()
    case.engine.close()


# --- private


def _fake(server: OpenAIServer) -> FakeEngine:
    info = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.0, log="", machine="m")
    endpoint = Endpoint(base_url=server.base_url, model=server.model, api_key_env="", info=info)
    return FakeEngine(endpoint, faults={666: ServerDied("the engine ended", hint="see its log")})
