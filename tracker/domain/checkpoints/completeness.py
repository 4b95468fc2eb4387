"""Whether a checkpoint folder is finished, decided from a listing of it. Pure.

    listing (names, sizes, times, safetensors headers, parsed JSON) -> assess -> Complete | NotYet | Rejected

A Hugging Face trainer creates the folder under its final name and writes for seconds or minutes: config, weights,
optimizer, random states, and trainer_state.json last. Nothing marks the end, so every file is checked: each shard in
the index exists, contains its tensors and has the size given by its own header; no temporary file is left;
trainer_state.json has the folder's step; every rank's random state exists. `watching` adds the time, `buckets` the
rules for S3, `adapters.checkpoints.pins.soundness` a check of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath

from eval_jobs.errors import CheckpointUnreadable, CheckpointUnsafe
from eval_jobs.limits import SERVED_FILE
from eval_jobs.records.served_files import SUFFIXES
from eval_jobs.types import CheckpointFormat
from tracker.domain.checkpoints.formats import WeightsLayout, layout_of, other_form
from tracker.domain.checkpoints.listing import (
    ADAPTER_CONFIG,
    INDEX,
    TRAINER_STATE,
    Broken,
    Document,
    Facts,
    Listing,
    RawKind,
    base_model_of,
    has_lost_entry,
    is_temporary,
)
from tracker.domain.checkpoints.names import counts_epochs, is_step
from tracker.domain.checkpoints.raw.state import check_config
from tracker.domain.checkpoints.unusable import NotYet, Rejected, not_yet, rejected
from tracker.domain.records.display import count_text

_RESUME_STATE = re.compile(r"(?:optimizer.*|scheduler|scaler)\.(?:pt|bin)$|rng_state.*\.pth$")


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What earlier checkpoints of the run had, and this one is therefore expected to have."""

    trainer_state: bool = False
    ranks: int = 0
    """Number of rng_state_<rank>.pth files; 0: a single process, or unknown."""
    small: frozenset[str] = frozenset()
    """Names of the files pinned besides the weights."""

    def after(self, complete: Complete) -> Habits:
        """Return the habits updated with a newer checkpoint."""
        has_state = self.trainer_state or complete.has_trainer_state
        return Habits(trainer_state=has_state, ranks=complete.ranks, small=complete.small())


@dataclass(frozen=True, kw_only=True)
class Complete:
    """The folder is a complete checkpoint."""

    format: CheckpointFormat
    base_model: str | None
    weights: tuple[str, ...]
    """Names of the weight files, ordered."""
    held: tuple[str, ...]
    """Names of all files that are pinned, the weights first."""
    step: int
    ranks: int
    has_trainer_state: bool
    is_end_proven: bool
    """The file that this trainer writes last exists: no more files will follow."""
    save_every: int | None = None
    """Steps between two saves according to trainer_state.json; None: unknown."""
    raw: RawKind | None = None
    """Form of the weights if they must be converted to safetensors first, else None."""
    config_from: str = ""
    """Folder with the configuration and tokenizer, if the checkpoint itself has none."""
    blocked: NotYet | Rejected | None = None
    """What is missing elsewhere before it can be served; it is held meanwhile."""

    @property
    def state_folder(self) -> str:
        """Sub-folder with the state that the weights are converted from; empty: the checkpoint itself."""
        return self.weights[0].rpartition("/")[0]

    def small(self) -> frozenset[str]:
        """Return the names of the files pinned besides the weights."""
        return frozenset(self.held) - frozenset(self.weights)


Readiness = Complete | NotYet | Rejected
Objection = NotYet | Rejected | None


def assess(
    listing: Listing, habits: Habits | None = None, *, allow_pickle: bool = False, converts: bool = False
) -> Readiness:
    """Return whether the checkpoint is complete, incomplete or unusable, with the first reason found.

    `converts`: a command of the user converts the forms that the tracker cannot read.
    """
    rules = (rule for rule in _RULES if not (converts and rule is _check_form))
    return _assess(listing, habits or Habits(), rules, allow_pickle=allow_pickle)


def assess_to_hold(
    listing: Listing, habits: Habits | None = None, *, allow_pickle: bool = False, converts: bool = False
) -> Readiness:
    """As `assess`, but a checkpoint that lacks only what is outside of it is complete and `blocked`.

    It must be held before rotation takes it, and can be served once the configuration or the permission is there.
    """
    found = assess(listing, habits, allow_pickle=allow_pickle, converts=converts)
    if isinstance(found, Complete) or not found.is_elsewhere:
        return found
    of_folder = tuple(rule for rule in _RULES if rule not in (_check_config, _check_form))
    held = _assess(listing, habits or Habits(), of_folder, allow_pickle=True)
    if isinstance(held, Complete):
        return replace(held, blocked=found, config_from="")
    return found


def stated_step(listing: Listing, complete: Complete) -> int | None:
    """Return the step that the name or the trainer state of a checkpoint has; None: neither has one."""
    if listing.step is None and not complete.has_trainer_state:
        return None
    return complete.step


def _assess(listing: Listing, habits: Habits, rules: Iterable[Rule], *, allow_pickle: bool) -> Readiness:
    if listing.facts.problem:
        return not_yet(f"cannot list its files: {listing.facts.problem}", hint="grant the tracker read permission")
    layout = layout_of(listing, allow_pickle=allow_pickle)
    if not isinstance(layout, WeightsLayout):
        return layout
    for rule in rules:
        finding = rule(listing, layout, habits)
        if finding is not None:
            return finding
    return _complete(listing, layout, habits)


def _check_form(listing: Listing, layout: WeightsLayout, _: Habits) -> Objection:
    form = other_form(listing) if _is_other(layout) else None
    return None if form is None else form.refusal()


def _check_links(listing: Listing, layout: WeightsLayout, _: Habits) -> Objection:
    for name in _held(listing.facts, layout):
        fact = listing.facts.file(name)
        if fact is not None and fact.outside:
            hint = "replace the link with the file, or evaluate this checkpoint with `tracker evaluate`"
            reason = f"{name} links to a path outside the watched folder"
            return rejected(reason, code=CheckpointUnsafe.code, hint=hint)
    return None


def _check_sizes(listing: Listing, _: WeightsLayout, __: Habits) -> Objection:
    for fact in listing.facts.files:
        if fact.name.endswith(SUFFIXES) and fact.size > SERVED_FILE.most:
            reason = f"{fact.name} has {count_text(fact.size, 'byte')}, more than a file beside the weights may have"
            return rejected(reason, code=CheckpointUnreadable.code, hint="delete the file, or save the step again")
    return None


def _check_weights(listing: Listing, layout: WeightsLayout, _: Habits) -> Objection:
    if layout.raw is not None:  # `find_raw` has checked them
        name = next((name for name in layout.weights if name in listing.raw.broken), None)
        return None if name is None else not_yet(f"{name} {listing.raw.broken[name]}")
    for name in layout.weights:
        finding = _check_shard(listing, name, layout.tensors.get(name))
        if finding is not None:
            return finding
    return None


def _check_shard(listing: Listing, name: str, expected: frozenset[str] | None) -> Objection:
    fact, header = listing.facts.file(name), listing.headers.get(name)
    if fact is None:
        return not_yet(f"{name} is missing")
    if isinstance(header, Broken):
        return not_yet(f"{name} {header.text}", code=header.code)
    if header is None or header.end != fact.size:
        expected_size = f"{header.end} according to its header" if header else "more"
        return not_yet(f"{name} has {count_text(fact.size, 'byte')}, expected {expected_size}")
    absent = sorted((expected or frozenset()) - header.tensors)
    if absent:
        return not_yet(f"{name} does not contain tensor {absent[0]} listed in {INDEX}")
    if header.tensors:
        return None
    return not_yet(f"{name} contains no tensors", code=CheckpointUnreadable.code)


def _check_config(listing: Listing, layout: WeightsLayout, _: Habits) -> Objection:
    if _is_other(layout):
        return None  # the command writes one
    finding = check_config(listing, layout.config, is_raw=layout.raw is not None)
    if finding is not None:
        return finding
    document = _config(listing, layout)
    if isinstance(document, Broken):
        return not_yet(f"{layout.config} {document.text}", code=document.code)
    if layout.format is CheckpointFormat.LORA and not base_model_of(document):
        reason = f"missing base_model_name_or_path in {ADAPTER_CONFIG}"
        return rejected(reason, code=CheckpointUnreadable.code, hint="set it to the path of the base model")
    return None


def _check_temporaries(listing: Listing, _: WeightsLayout, __: Habits) -> Objection:
    name = _temporary(listing.facts)
    if name is None:
        return None
    return not_yet(f"temporary file {name} still exists")


def _check_trainer_state(listing: Listing, _: WeightsLayout, habits: Habits) -> Objection:
    document = listing.documents.get(TRAINER_STATE)
    if document is None:
        sign = _sign_of_state(listing.facts, habits)
        if sign is None:
            return None
        return not_yet(f"{TRAINER_STATE}, which the trainer writes last, is missing although {sign}")
    if isinstance(document, Broken):
        return not_yet(f"{TRAINER_STATE} {document.text}", code=document.code)
    step = document.get("global_step")
    if listing.step is not None and step != listing.step and not _counts_epochs(listing):
        return not_yet(f"{TRAINER_STATE} has step {step}, the folder name has {listing.step}")
    return None


def _sign_of_state(facts: Facts, habits: Habits) -> str | None:
    for name in sorted(facts.names()):
        if _RESUME_STATE.match(name):
            return f"{name} exists"
    if habits.trainer_state:
        return "earlier checkpoints of the run have it"
    return None


def _check_ranks(listing: Listing, _: WeightsLayout, __: Habits) -> Objection:
    """Require every rank below the highest one seen."""
    ranks = listing.facts.ranks()
    if not ranks:
        return None
    missing = next(rank for rank in count() if rank not in ranks)
    if missing < max(2, *ranks):
        return not_yet(f"rng_state_{missing}.pth is missing: that rank has not finished saving")
    return None


Rule = Callable[[Listing, WeightsLayout, Habits], Objection]
_RULES: tuple[Rule, ...] = (
    _check_form,
    _check_links,
    _check_sizes,
    _check_weights,
    _check_config,
    _check_temporaries,
    _check_trainer_state,
    _check_ranks,
)


def _complete(listing: Listing, layout: WeightsLayout, habits: Habits) -> Complete:
    state = listing.documents.get(TRAINER_STATE)
    fields = state if isinstance(state, Mapping) else {}
    config = _config(listing, layout)
    is_lora = layout.format is CheckpointFormat.LORA
    return Complete(
        format=layout.format,
        base_model=(listing.base_folder or base_model_of(config)) if is_lora else None,
        weights=layout.weights,
        held=_held(listing.facts, layout),
        step=_step(listing, fields.get("global_step")),
        ranks=len(listing.facts.ranks()),
        has_trainer_state=state is not None,
        is_end_proven=_is_end_proven(listing.facts, layout, habits),
        save_every=_save_every(fields),
        raw=layout.raw.kind if layout.raw else None,
        config_from="" if layout.config in listing.documents or _is_other(layout) else listing.raw.config_from,
    )


def _step(listing: Listing, stated: object) -> int:
    is_named = listing.step is not None and not _counts_epochs(listing)
    if not is_named and is_step(stated):
        return stated
    return listing.step or 0


def _is_other(layout: WeightsLayout) -> bool:
    return layout.raw is not None and layout.raw.kind is RawKind.OTHER


def _counts_epochs(listing: Listing) -> bool:
    return counts_epochs(PurePath(listing.facts.path).name)


def _config(listing: Listing, layout: WeightsLayout) -> Document | Broken | None:
    return listing.documents.get(layout.config, listing.raw.elsewhere.get(layout.config))


def _is_end_proven(facts: Facts, layout: WeightsLayout, habits: Habits) -> bool:
    state, held = facts.file(TRAINER_STATE), set(_held(facts, layout))
    if state is None or _temporary(facts) is not None or has_lost_entry(facts):
        return False
    # trainer_state.json is older than the weights: the step is being saved a second time.
    if any(f.mtime_ns > state.mtime_ns for f in facts.files if f.name in held):
        return False
    # Other ranks may write after trainer_state.json: only an earlier checkpoint shows how many there are.
    ranks = len(facts.ranks())
    return ranks == 0 == habits.ranks or ranks >= habits.ranks > 0


def _temporary(facts: Facts) -> str | None:
    """Return a temporary file that will still be renamed."""
    # One that is older than trainer_state.json was left by a killed save, before the same step was saved again.
    state = facts.file(TRAINER_STATE)
    since_ns = 0 if state is None else state.mtime_ns
    return next((f.name for f in facts.files if is_temporary(f.name) and f.mtime_ns >= since_ns), None)


def _held(facts: Facts, layout: WeightsLayout) -> tuple[str, ...]:
    small = [f.name for f in facts.files if f.name.endswith(SUFFIXES) and not is_temporary(f.name)]
    small += layout.raw.extra if layout.raw else ()
    return layout.weights + tuple(sorted(set(small) - set(layout.weights)))


def _save_every(state: Document) -> int | None:
    save_steps, step = state.get("save_steps"), state.get("global_step")
    # This save is the best so far: the trainer may save on improvement only, without a fixed interval.
    if not is_step(save_steps) or save_steps < 1 or state.get("best_global_step") == step:
        return None
    return save_steps
