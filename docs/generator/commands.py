"""The reference of commands, from the same objects as `--help`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tracker.cli.main import GROUPS, cli

WIDTH = 100

HEAD = """# Commands

Every command with its options. `tracker COMMAND --help` prints the same text. See also
[exit codes](errors.md#exit-codes) and [JSON output](json.md).

Shell completion: add `eval "$(_TRACKER_COMPLETE=bash_source tracker)"` to `~/.bashrc`
(for zsh, `zsh_source` in `~/.zshrc`; for fish, `_TRACKER_COMPLETE=fish_source tracker | source`).
"""


def commands_page() -> str:
    """Return docs/reference/commands.md."""
    parts = [HEAD]
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
    """Yield the options as `--help` shows them, in the width of a page."""
    formatter = click.HelpFormatter(width=WIDTH)
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    rows = [record for record in records if record is not None and "--help" not in record[0]]
    if rows:
        formatter.write("\n")
        formatter.write_dl(rows)
    return iter(formatter.getvalue().rstrip().splitlines())
