"""SGLang as an engine, on a stand-in for its server: every swap is proved, and every doubt is a new start."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import ConfigError, ServerDied, StartTimeout, WrongModel
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.sglang.engine import SglangEngine
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, EngineKind, ServeSpec, SwapPolicy
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.sglang_stand_in import write_interpreter
from tests.tiny_model import checkpoint_record, write_checkpoint, write_lora
from tests.warm_engines import LeapingClock


class SlowClock(SystemClock):
    """Goes two hundred times slower: a start may take its time where answers may not."""

    def monotonic_s(self) -> float:
        return super().monotonic_s() / 200


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = SglangEngine(folder / "work", SystemClock())
        self.spec = ServeSpec(engine=EngineKind.SGLANG, python=str(write_interpreter(folder)), startup_timeout_s=600.0)
        self.endpoint: Endpoint | None = None

    def checkpoint(self, seed: int) -> Checkpoint:
        folder = self.folder / f"checkpoint-{seed}"
        if not folder.exists():
            write_checkpoint(folder, seed=seed)
        return checkpoint_record(folder, step=100 * seed)

    def serve(self, checkpoint: Checkpoint | int, **settings: Any) -> EngineInfo:
        found = self.checkpoint(checkpoint) if isinstance(checkpoint, int) else checkpoint
        spec = replace(self.spec, **settings)
        with self.engine.serving(found, spec, progress=nothing_to_show) as endpoint:
            self.endpoint = endpoint
            return endpoint.info

    def get(self, path: str) -> Any:
        assert self.endpoint is not None
        with urllib.request.urlopen(self.endpoint.base_url.removesuffix("/v1") + path, timeout=120) as answer:  # noqa: S310
            return json.load(answer)

    def mode(self, name: str) -> None:
        self.get(f"/mode/{name}")

    def certify(self) -> None:
        """Serve two checkpoints: the first swap is compared with a cold start."""
        assert [self.serve(seed).load_method for seed in (1, 2)] == ["cold", "cold"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.engine.close()


def test_the_first_swap_is_compared_with_a_cold_start_and_the_next_ones_are_swaps(bench: Bench) -> None:
    first = bench.serve(1)
    assert (first.name, first.version, first.load_method) == ("sglang", "0.0.stand-in", "cold")
    second = bench.serve(2)
    assert second.load_method == "cold"
    assert "bit-identical to a cold start, now certified" in second.load_reason
    third = bench.serve(3)
    assert (third.load_method, third.certificate != "") == ("swap", True)
    assert third.canaries != second.canaries
    again = bench.serve(2)
    assert again.load_method == "swap"
    assert again.canaries == second.canaries, "as after its cold start"


def test_a_swap_is_paused_flushed_labelled_and_continued(bench: Bench) -> None:
    bench.certify()
    before = len(bench.get("/state")["asked"])
    bench.serve(3)
    state = bench.get("/state")
    routes = [path for path in state["asked"][before:] if path.startswith(("/pause", "/update", "/flush", "/cont"))]
    assert routes == ["/pause_generation", "/update_weights_from_disk", "/flush_cache", "/continue_generation"]
    assert state["path"] == bench.checkpoint(3).uri


def test_the_same_checkpoint_again_stays_and_its_cache_of_prompts_is_emptied(bench: Bench) -> None:
    bench.serve(1)
    before = len(bench.get("/state")["asked"])
    assert bench.serve(1).load_reason == "already loaded"
    asked = bench.get("/state")["asked"][before:]
    assert "/flush_cache" in asked
    assert "/update_weights_from_disk" not in asked


def test_the_model_is_asked_for_under_the_name_that_it_has_after_an_update(bench: Bench) -> None:
    bench.certify()
    bench.serve(3)
    assert bench.endpoint is not None
    assert bench.endpoint.model == bench.checkpoint(3).uri
    bench.mode("keeps-name")
    bench.engine.close()
    bench.serve(1, args=("--stand-in", "keeps-name"))
    bench.serve(2, args=("--stand-in", "keeps-name"))
    bench.serve(3, args=("--stand-in", "keeps-name"))
    assert bench.endpoint.model.startswith("engine-")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("says-no", "failed to update its weights (HTTP 400"),
        ("says-no-200", "failed to update its weights (HTTP 200"),
        ("other-path", "reports model_path '/somewhere/else' (expected "),
        ("other-version", "reports weight_version 'default' (expected "),
        ("no-version", "reports weight_version None (expected "),
        ("other-name", "serves somebody-elses-model"),
        ("dies", "no response"),
        ("no-flush", "failed to flush its cache"),
        ("no-pause", "cannot be paused"),
        ("no-update", "cannot update weights from a folder"),
        ("does-nothing", "bit-identical to those of the weights"),
        ("remembers", "bit-identical to those of the weights"),
        ("nan", "NaN or Inf"),
    ],
)
def test_any_doubt_about_a_swap_is_a_new_start_on_the_right_weights(bench: Bench, mode: str, words: str) -> None:
    bench.certify()
    bench.mode(mode)
    info = bench.serve(3)
    assert info.load_method == "cold"
    assert words in info.load_reason
    state = bench.get("/state")
    assert state["path"] == bench.checkpoint(3).uri
    fresh = Bench(bench.folder)
    try:
        assert info.canaries == fresh.serve(3).canaries, "as an engine that never held anything else"
    finally:
        fresh.engine.close()


def test_an_engine_that_stays_paused_is_started_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.certify()
    monkeypatch.setattr("eval_jobs.serve.sglang.canary.CANARY_TIMEOUT_S", 0.5)
    bench.mode("stays-paused")
    info = bench.serve(3)
    assert info.load_method == "cold"
    assert bench.get("/state")["path"] == bench.checkpoint(3).uri


def test_an_update_that_takes_too_long_is_a_new_start(bench: Bench) -> None:
    bench.engine = SglangEngine(bench.folder / "work", SlowClock())
    bench.certify()
    bench.mode("slow")
    info = bench.serve(3, startup_timeout_s=3.0)
    assert info.load_method == "cold"
    assert "no response within 3 s" in info.load_reason


def test_swaps_that_answer_otherwise_than_a_cold_start_are_refused_from_then_on(bench: Bench) -> None:
    settings = {"args": ("--stand-in", "mixes")}
    assert bench.serve(1, **settings).load_method == "cold"
    second = bench.serve(2, **settings)
    assert second.load_method == "cold"
    assert "differs from a cold start, now refused" in second.load_reason
    third = bench.serve(3, **settings)
    assert third.load_method == "cold"
    assert "are refused" in third.load_reason
    assert "/update_weights_from_disk" not in bench.get("/state")["asked"]


def test_a_mixture_after_the_certificate_is_noticed_where_the_checkpoint_was_served_before(bench: Bench) -> None:
    bench.certify()
    bench.serve(3)
    bench.mode("mixes")
    info = bench.serve(2)
    assert info.load_method == "cold"
    assert "outputs differ from those of its previous load" in info.load_reason


def test_weights_that_do_not_fit_are_never_sent(bench: Bench) -> None:
    bench.certify()
    other = bench.checkpoint(4)
    config = Path(other.uri) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 123.0}))
    info = bench.serve(other)
    assert info.load_method == "cold"
    assert "config.json" in info.load_reason


def test_weights_that_were_overwritten_since_they_were_pinned_are_not_served(bench: Bench) -> None:
    bench.certify()
    pinned = bench.checkpoint(3)
    write_checkpoint(Path(pinned.uri), seed=9)
    with pytest.raises(Exception, match="changed after the checkpoint was found"):
        bench.serve(pinned)


def test_without_swaps_every_checkpoint_is_a_new_start(bench: Bench) -> None:
    methods = [bench.serve(seed, swap=SwapPolicy.NEVER).load_method for seed in (1, 2, 3)]
    assert methods == ["cold"] * 3


def test_older_versions_are_asked_by_their_own_routes(bench: Bench) -> None:
    info = [bench.serve(seed, args=("--stand-in", "old-routes")) for seed in (1, 2, 3)]
    assert [one.load_method for one in info] == ["cold", "cold", "swap"]
    assert info[0].version == "0.0.stand-in"


def test_the_engine_is_ready_when_its_warm_up_is_over_and_not_before(bench: Bench) -> None:
    bench.serve(1, args=("--stand-in", "warms-up"))
    assert bench.get("/state")["asked"].count("/health") > 1


def test_a_warm_up_without_end_is_a_timeout(bench: Bench) -> None:
    bench.engine = SglangEngine(bench.folder / "work", LeapingClock(bench.folder / "work", "still warming up"))
    with pytest.raises(StartTimeout, match="is not ready after 600 s"):
        bench.serve(1, args=("--stand-in", "warms-on"))


def test_a_start_that_fails_is_told_with_its_reason(bench: Bench) -> None:
    with pytest.raises(ServerDied, match="NoSuchModel"):
        bench.serve(1, args=("--stand-in", "die"))
    with pytest.raises(WrongModel):
        bench.serve(1, args=("--stand-in", "other-model"))
    assert bench.serve(1).load_method == "cold"


def test_an_adapter_is_refused_in_words(bench: Bench) -> None:
    base = Path(bench.checkpoint(1).uri)
    adapter = checkpoint_record(write_lora(base, bench.folder / "adapter"), step=100, base=base)
    with pytest.raises(ConfigError, match="SGLang serves only full checkpoints"):
        bench.serve(adapter)
