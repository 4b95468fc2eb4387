"""Identifies an engine or evaluator other than the built-in ones. A part of `types`."""

from dataclasses import dataclass

from eval_jobs.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Program:
    """An engine, evaluator, channel or checkpoint source other than the built-in ones, as named in the settings."""

    name: str
    """Name of its entry point."""
    version: str = ""
    """Package and version, such as `acme-tools 1.2`. Scores of another version form another series."""
    command: str = ""
    """Path of the executable, if it is one. Not part of any identity."""
    options: tuple[tuple[str, str], ...] = ()
    """Its own settings, ordered by name. They contain no secret, only its location: `token_env`, `token_file`."""

    def option(self, name: str, default: str = "") -> str:
        """Return the option `name`, or `default`."""
        return dict(self.options).get(name, default)

    def check_options(self, *known: str) -> None:
        """Reject unknown options: a misspelled one would go unnoticed.

        Raises:
            ConfigError: an option is not in `known`.
        """
        if wrong := [name for name, _ in self.options if name not in known]:
            raise ConfigError(
                f"unknown option `{wrong[0]}` of `{self.name}` (known: {', '.join(known) or 'none'})",
                hint="fix its options",
            )
