"""Runs the scripts that migrate tables from one version to the next, with alembic."""

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep, RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def carry_out_missing(connection: Connection, *, folder: Path, version_table: str) -> None:
    """Run the scripts in `folder`/versions after the version in `version_table`, inside the open transaction."""
    scripts = ScriptDirectory(folder)

    def missing(carried_out: str | tuple[str, ...], _: MigrationContext) -> list[RevisionStep]:
        newest_first = scripts.iterate_revisions("head", carried_out, implicit_base=True)
        steps = [MigrationStep.upgrade_from_script(scripts.revision_map, script) for script in newest_first]
        return steps[::-1]

    context = MigrationContext.configure(connection, opts={"fn": missing, "version_table": version_table})
    with Operations.context(context):
        context.run_migrations()
