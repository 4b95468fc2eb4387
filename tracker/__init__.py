"""Results of evaluated checkpoints as tables.

    import tracker

    project = tracker.open("tracker.toml")
    project["my-run"].scores("gsm8k")

Names are loaded when they are first used: `import tracker` loads nothing.
"""

_RESULTS = ("Project", "open", "schema")
_ANSWERS = ("Comparison", "Gate")
_ERRORS = ("ConfigError", "StoreError", "TrackerError")

__all__ = [
    "Comparison",
    "ConfigError",
    "Evaluation",
    "Gate",
    "Project",
    "Samples",
    "StoreError",
    "TrackerError",
    "open",
    "schema",
]


def __getattr__(name: str) -> object:
    if name in _RESULTS:
        from tracker.api import results

        return getattr(results, name)
    if name in _ANSWERS:
        from tracker.api import answers

        return getattr(answers, name)
    if name == "Evaluation":
        from tracker.api.acting import Evaluation

        return Evaluation
    if name == "Samples":
        from tracker.api.samples import Samples

        return Samples
    if name in _ERRORS:
        from eval_jobs import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
