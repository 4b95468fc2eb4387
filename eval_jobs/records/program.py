"""What names an engine or an evaluator that is not built in. A part of `types`."""

from dataclasses import dataclass

from eval_jobs.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Program:
    """An engine, an evaluator, a channel or a checkpoint source beside the built-in ones, as the settings name it."""

    name: str
    """Of its entry point."""
    version: str = ""
    """Package and version that it comes from, `acme-tools 1.2`: scores of another version are another series."""
    command: str = ""
    """Path of the program where it is one. Part of no identity."""
    options: tuple[tuple[str, str], ...] = ()
    """Its own settings, ordered by name. A secret is not in them, only where it is: `token_env`, `token_file`."""

    def option(self, name: str, default: str = "") -> str:
        """Return one of its settings."""
        return dict(self.options).get(name, default)

    def check_options(self, *known: str) -> None:
        """Refuse a setting that nobody reads: one that is mistyped would go unnoticed.

        Raises:
            ConfigError: one is not among the known ones.
        """
        if wrong := [name for name, _ in self.options if name not in known]:
            raise ConfigError(
                f"unknown option `{wrong[0]}` of `{self.name}` (known: {', '.join(known) or 'none'})",
                hint="correct its options",
            )
