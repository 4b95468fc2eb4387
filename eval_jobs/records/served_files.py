"""Which files of a model folder an engine may read beside the weights. Pure."""

SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py", ".spm", ".bpe", ".vocab")
"""Of configuration, tokenizer and chat template; optimizer and random states have others."""

NOTES = frozenset(
    {
        "trainer_state.json",
        "tokens_state.json",
        "all_results.json",
        "train_results.json",
        "eval_results.json",
        "args.json",
        "additional_config.json",
        "training_args.json",
        "model.safetensors.index.json",
    }
)
"""Records and options of trainers, which change with every resume, and the index, which repeats the shards' headers."""


def is_served(name: str) -> bool:
    """Return whether an engine may read the file `name` beside the weights; hidden ones are the tracker's own."""
    return name.endswith(SUFFIXES) and name not in NOTES and not name.startswith(".")
