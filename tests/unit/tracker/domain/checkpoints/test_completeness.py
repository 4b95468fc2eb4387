"""Every rule that makes a checkpoint folder complete, one by one, on listings without a disk."""

from dataclasses import replace

import pytest

from eval_jobs.types import CheckpointFormat
from tracker.domain.checkpoints.completeness import Complete, Habits, Readiness, assess
from tracker.domain.checkpoints.listing import Broken, Document, Facts, FileFact, Header, Listing, RawFacts, StateIndex
from tracker.domain.checkpoints.unusable import NotYet, Rejected

NS = 1_000_000_000
HEADER = Header(end=100, tensors=frozenset({"a", "b"}))
CONFIG: Document = {"model_type": "llama"}
STATE: Document = {"global_step": 10, "save_steps": 10}
INDEX_NAME = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def files(*names: str, size: int = 100) -> tuple[FileFact, ...]:
    """Return files written one second after the other, in the order given."""
    facts = [FileFact(name=n, size=size, mtime_ns=(i + 1) * NS, inode=i + 1) for i, n in enumerate(names)]
    return tuple(sorted(facts, key=lambda f: f.name))


def listing(*names: str, step: int | None = 10, **documents: Document | Broken) -> Listing:
    """Return a listing; `config_json={...}` is the document config.json."""
    found = files(*names)
    return Listing(
        facts=Facts(path="/out/checkpoint-10", mtime_ns=len(names) * NS, files=found),
        step=step,
        headers={n: HEADER for n in names if n.endswith(".safetensors")},
        documents={key.removesuffix("_json") + ".json": value for key, value in documents.items()},
    )


def full(*more: str) -> Listing:
    """Return what the Trainer writes for a single process."""
    names = ("config.json", "model.safetensors", "optimizer.pt", "rng_state.pth", *more, "trainer_state.json")
    return listing(*names, config_json=CONFIG, trainer_state_json=STATE)


def sharded(weight_map: Document | None = None) -> Listing:
    weight_map = weight_map or {"a": SHARDS[0], "b": SHARDS[1]}
    plain = listing("config.json", *SHARDS, INDEX_NAME, "trainer_state.json")
    documents: dict[str, Document | Broken] = {
        "config.json": CONFIG,
        INDEX_NAME: {"weight_map": weight_map},
        "trainer_state.json": STATE,
    }
    return replace(plain, documents=documents)


def lora(**config: object) -> Listing:
    return listing(
        "adapter_config.json",
        "adapter_model.safetensors",
        "trainer_state.json",
        adapter_config_json=config,
        trainer_state_json=STATE,
    )


def without(found: Listing, *names: str) -> Listing:
    kept = tuple(f for f in found.facts.files if f.name not in names)
    return replace(
        found,
        facts=replace(found.facts, files=kept),
        headers={n: h for n, h in found.headers.items() if n not in names},
        documents={n: d for n, d in found.documents.items() if n not in names},
    )


def reason_of(readiness: Readiness) -> str:
    assert isinstance(readiness, NotYet | Rejected), readiness
    assert readiness.hint
    return readiness.reason


def test_what_the_trainer_writes_is_complete_and_needs_no_waiting() -> None:
    readiness = assess(full())
    assert isinstance(readiness, Complete)
    assert readiness.is_end_proven
    assert readiness.format is CheckpointFormat.FULL
    assert readiness.weights == ("model.safetensors",)
    assert readiness.step == 10
    assert readiness.save_every == 10


def test_a_pin_holds_what_serving_needs_and_no_training_state() -> None:
    found = full("tokenizer.json", "chat_template.jinja", "merges.txt", "tokenizer.model", "scheduler.pt")
    readiness = assess(found)
    assert isinstance(readiness, Complete)
    assert readiness.held == (
        "model.safetensors",
        "chat_template.jinja",
        "config.json",
        "merges.txt",
        "tokenizer.json",
        "tokenizer.model",
        "trainer_state.json",
    )


def test_all_shards_of_an_index_are_the_weights() -> None:
    readiness = assess(sharded())
    assert isinstance(readiness, Complete)
    assert readiness.weights == SHARDS
    assert set(readiness.held) == {*SHARDS, INDEX_NAME, "config.json", "trainer_state.json"}


def test_an_adapter_names_its_base() -> None:
    readiness = assess(lora(base_model_name_or_path="/models/base"))
    assert isinstance(readiness, Complete)
    assert readiness.format is CheckpointFormat.LORA
    assert readiness.base_model == "/models/base"


def test_an_adapter_without_a_base_is_rejected() -> None:
    assert "missing base_model_name_or_path" in reason_of(assess(lora(base_model_name_or_path=None)))


def test_a_missing_shard_is_named() -> None:
    assert reason_of(assess(without(sharded(), SHARDS[1]))) == f"{SHARDS[1]} is missing"


def test_shards_without_an_index_are_not_ready() -> None:
    assert INDEX_NAME in reason_of(assess(without(sharded(), INDEX_NAME)))


def test_a_tensor_that_is_not_in_its_shard_is_named() -> None:
    assert "tensor c" in reason_of(assess(sharded({"a": SHARDS[0], "c": SHARDS[1]})))


@pytest.mark.parametrize("shard", ["../other/model.safetensors", "/etc/passwd", "weights.bin", 7, None])
def test_an_index_cannot_lead_out_of_the_folder(shard: object) -> None:
    readiness = assess(sharded({"a": SHARDS[0], "b": shard}))
    assert isinstance(readiness, Rejected)
    assert readiness.code == "E-CKPT-UNREADABLE"


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": []}, {"weight_map": None}])
def test_an_index_without_a_map_is_not_ready(index: Document) -> None:
    found = sharded()
    broken = replace(found, documents={**found.documents, INDEX_NAME: index})
    assert "weight_map" in reason_of(assess(broken))


def test_one_file_beside_an_index_is_two_saves_mixed() -> None:
    mixed = listing("config.json", "model.safetensors", *SHARDS, INDEX_NAME)
    assert "two saves are mixed" in reason_of(assess(mixed))


@pytest.mark.parametrize("size", [0, 1, 99, 101, 10_000])
def test_a_file_of_another_size_than_its_header_says_is_not_ready(size: int) -> None:
    found = full()
    changed = tuple(replace(f, size=size) if f.name == "model.safetensors" else f for f in found.facts.files)
    assert ", expected " in reason_of(assess(replace(found, facts=replace(found.facts, files=changed))))


def test_a_broken_header_is_not_ready() -> None:
    broken = replace(full(), headers={"model.safetensors": Broken(code="E-CKPT-UNREADABLE", text="has none")})
    readiness = assess(broken)
    assert reason_of(readiness) == "model.safetensors has none"
    assert isinstance(readiness, NotYet)
    assert readiness.code == "E-CKPT-UNREADABLE"


def test_a_file_without_tensors_is_not_ready() -> None:
    empty = replace(full(), headers={"model.safetensors": Header(end=100, tensors=frozenset())})
    assert "no tensor" in reason_of(assess(empty))


def test_a_missing_or_broken_config_is_not_ready() -> None:
    assert reason_of(assess(without(full(), "config.json"))) == "config.json is missing"
    found = full()
    broken = {**found.documents, "config.json": Broken(code="E-CKPT-UNREADABLE", text="is no valid JSON")}
    assert reason_of(assess(replace(found, documents=broken))) == "config.json is no valid JSON"


@pytest.mark.parametrize("name", [".tmpA1b2C3", "model.safetensors.tmp", "x.part", "y.partial", "z.incomplete"])
def test_a_temporary_file_means_that_something_is_still_being_written(name: str) -> None:
    found = full()
    late = FileFact(name=name, size=1, mtime_ns=99 * NS, inode=99)
    assert name in reason_of(assess(replace(found, facts=replace(found.facts, files=(*found.facts.files, late)))))


def test_what_a_killed_save_left_behind_before_the_step_was_saved_again_is_no_reason_to_wait() -> None:
    readiness = assess(full(".tmpA1b2C3"))
    assert isinstance(readiness, Complete)
    # Else a hold would be lost when the step is saved once more before it was published.
    assert readiness.is_end_proven
    assert ".tmpA1b2C3" not in readiness.held


def test_trainer_state_of_another_step_is_not_ready() -> None:
    other = full()
    state: Document = {"global_step": 5}
    reason = reason_of(assess(replace(other, documents={**other.documents, "trainer_state.json": state})))
    assert reason == "trainer_state.json has step 5, the folder name has 10"


def test_a_folder_without_a_step_in_its_name_takes_the_trainers() -> None:
    readiness = assess(replace(full(), step=None))
    assert isinstance(readiness, Complete)
    assert readiness.step == 10


def test_broken_trainer_state_is_not_ready() -> None:
    found = full()
    broken = {**found.documents, "trainer_state.json": Broken(code="E-CKPT-UNREADABLE", text="is no JSON object")}
    assert reason_of(assess(replace(found, documents=broken))) == "trainer_state.json is no JSON object"


def test_optimizer_state_without_trainer_state_means_that_the_trainer_is_not_done() -> None:
    assert "writes last" in reason_of(assess(without(full(), "trainer_state.json")))


def test_a_save_of_the_model_alone_needs_no_trainer_state() -> None:
    saved = listing("config.json", "model.safetensors", config_json=CONFIG, step=None)
    readiness = assess(saved)
    assert isinstance(readiness, Complete)
    assert not readiness.is_end_proven
    assert readiness.step == 0


def test_trainer_state_is_expected_where_earlier_checkpoints_had_it() -> None:
    saved = listing("config.json", "model.safetensors", config_json=CONFIG)
    assert isinstance(assess(saved), Complete)
    assert "earlier checkpoints" in reason_of(assess(saved, Habits(trainer_state=True)))


@pytest.mark.parametrize("ranks", [[0], [1], [0, 2], [1, 2, 3], [0, 10**12]])
def test_every_rank_below_the_highest_must_be_there(ranks: list[int]) -> None:
    assert "rank has not finished" in reason_of(assess(full(*(f"rng_state_{rank}.pth" for rank in ranks))))


def test_the_first_checkpoint_of_several_ranks_calls_for_patience() -> None:
    first = assess(full("rng_state_0.pth", "rng_state_1.pth"))
    assert isinstance(first, Complete)
    assert (first.ranks, first.is_end_proven) == (2, False)
    later = assess(full("rng_state_0.pth", "rng_state_1.pth"), Habits(trainer_state=True, ranks=2))
    assert isinstance(later, Complete)
    assert later.is_end_proven


def test_fewer_ranks_than_before_call_for_patience_and_not_for_ever() -> None:
    readiness = assess(full("rng_state_0.pth", "rng_state_1.pth"), Habits(trainer_state=True, ranks=4))
    assert isinstance(readiness, Complete)
    assert not readiness.is_end_proven


def test_weights_newer_than_trainer_state_are_a_second_save_of_the_step() -> None:
    found = full()
    newer = tuple(replace(f, mtime_ns=50 * NS) if f.name == "model.safetensors" else f for f in found.facts.files)
    readiness = assess(replace(found, facts=replace(found.facts, files=newer)))
    assert isinstance(readiness, Complete)
    assert not readiness.is_end_proven


def test_a_folder_that_changed_after_its_newest_file_may_be_on_its_way_out() -> None:
    found = full()
    readiness = assess(replace(found, facts=replace(found.facts, mtime_ns=60 * NS)))
    assert isinstance(readiness, Complete)
    assert not readiness.is_end_proven


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "adapter_model.bin", "model.pt"]
)
def test_pickle_weights_are_refused(name: str) -> None:
    readiness = assess(listing("config.json", name, config_json=CONFIG))
    assert isinstance(readiness, Rejected)
    assert readiness.code == "E-CKPT-UNSAFE"
    assert name in readiness.reason


def test_pickle_weights_beside_safetensors_do_not_matter() -> None:
    assert isinstance(assess(full("pytorch_model.bin")), Complete)


def test_training_state_is_no_pickled_model() -> None:
    for name in ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt"):
        assert isinstance(assess(listing("config.json", name, config_json=CONFIG)), NotYet)


@pytest.mark.parametrize("folder", ["global_step10", "pytorch_model_fsdp_0"])
def test_a_sharded_training_state_that_is_not_whole_is_named_and_waited_for(folder: str) -> None:
    found = listing("config.json", config_json=CONFIG)
    readiness = assess(replace(found, facts=replace(found.facts, folders=(folder,))))
    assert isinstance(readiness, NotYet)
    assert folder in reason_of(readiness)


def test_a_link_out_of_the_folder_is_refused() -> None:
    found = full()
    linked = tuple(replace(f, outside=f.name == "model.safetensors") for f in found.facts.files)
    readiness = assess(replace(found, facts=replace(found.facts, files=linked)))
    assert isinstance(readiness, Rejected)
    assert readiness.code == "E-CKPT-UNSAFE"


def test_an_empty_folder_and_one_that_cannot_be_listed_say_so() -> None:
    assert reason_of(assess(listing())) == "folder is empty"
    ranks = replace(listing(), facts=replace(listing().facts, folders=("rank_00", "rank_01")))
    assert reason_of(assess(ranks)) == "no weights in the Hugging Face format: only rank_00 and rank_01"
    closed = Listing(facts=Facts(path="/x", mtime_ns=0, files=(), problem="Permission denied"), step=1)
    assert "Permission denied" in reason_of(assess(closed))


def test_a_trainer_that_saves_on_improvement_has_no_rhythm() -> None:
    found = full()
    state: Document = {"global_step": 10, "save_steps": 10, "best_global_step": 10}
    readiness = assess(replace(found, documents={**found.documents, "trainer_state.json": state}))
    assert isinstance(readiness, Complete)
    assert readiness.save_every is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("lit_model.pth", "model_config.yaml"), "checkpoint of LitGPT, which needs a converter"),
        (("config.json", "optimizer.pt", "rng_state.pth", "training_args.bin"), "no weights: model.safetensors"),
        (("mp_rank_00_model_states.pt",), "no weights: model.safetensors"),
        (("common.pt", "metadata.json"), "no weights: model.safetensors"),  # of Megatron-core, which writes more
    ],
)
def test_weights_in_another_form_need_a_converter(names: tuple[str, ...], said: str) -> None:
    outcome = assess(listing(*names))
    assert isinstance(outcome, Rejected | NotYet)
    assert outcome.reason.startswith(said)
    assert isinstance(outcome, Rejected) == ("watch.convert" in outcome.hint) == ("converter" in said)


@pytest.mark.parametrize(("tensor", "is_torchtitan"), [("tok_embeddings.weight", True), ("model.norm.weight", False)])
def test_the_distributed_checkpoint_of_torchtitan_needs_a_converter(tensor: str, *, is_torchtitan: bool) -> None:
    index = StateIndex(files={"__0_0.distcp": 1}, tensors={tensor: (8, 8)}, keys={tensor: tensor})
    state = replace(listing("__0_0.distcp", ".metadata", config_json=CONFIG), raw=RawFacts(index=index))
    outcome = assess(state)
    assert isinstance(outcome, Rejected if is_torchtitan else Complete)
    assert not isinstance(outcome, Rejected) or "convert_to_hf.py`, or set watch.convert" in outcome.hint
