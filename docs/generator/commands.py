"""The reference of commands, from the same objects as `--help`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from tracker.cli.main import GROUPS, cli

WIDTH = 100

HEAD = """# Commands

What `tracker COMMAND --help` prints. See also [exit codes](errors.md#exit-codes) and [JSON output](json.md).

Shell completion: add `eval "$(_TRACKER_COMPLETE=bash_source tracker)"` to `~/.bashrc`
(for zsh, `zsh_source` in `~/.zshrc`; for fish, `_TRACKER_COMPLETE=fish_source tracker | source`).

Options without a text below:
"""

COMMON = {
    "--config FILE": "Project configuration.  [default: tracker.toml]",
    "--json": "Print JSON instead of a table.",
    "--workers INTEGER RANGE": "Number of local workers (0: none).  [default: 1; x>=0]",
}
"""Options of many commands, explained once."""


def commands_page() -> str:
    """Return docs/reference/commands.md."""
    parts = [HEAD, "\n".join(["```text", *_lines(COMMON.items()), "```", ""])]
    root = click.Context(cli, info_name="tracker")
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            command = cli.get_command(root, name)
            if command is not None:
                parts += _sections(command, name, root)
    return "\n".join(parts)


# --- private


def _sections(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"### tracker {context.command_path.partition(' ')[2]}\n"
    yield f"{_help(command)}\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None:
                yield from _sections(inner, each, context)
        return
    usage = " ".join([f"tracker {context.command_path.partition(' ')[2]}", *command.collect_usage_pieces(context)])
    yield "\n".join(["```text", usage, *_options(command, context), "```", ""])


def _help(command: click.Command) -> str:
    """Return the help text; click marks paragraphs by empty lines, as Markdown does."""
    lines = [line.strip() for line in (command.help or "").splitlines()]
    return "\n".join(lines).strip()


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the options as `--help` shows them, without the texts of common ones."""
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    rows = [record for record in records if record is not None and "--help" not in record[0]]
    if rows:
        yield ""
        yield from _lines((names, "" if text == COMMON.get(names) else text) for names, text in rows)


def _lines(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return options and their texts in two columns, in the width of a page."""
    formatter = click.HelpFormatter(width=WIDTH)
    formatter.write_dl(list(rows))
    return [line.rstrip() for line in formatter.getvalue().rstrip().splitlines()]
