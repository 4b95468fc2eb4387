"""What `--json` prints fits the schema that is published for the command."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from docs.generator.json_schemas import schemas
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.api.opening import open_project
from tracker.cli.main import cli

RUN = forgetting_run(samples=8)
COMMANDS = (
    ("history",),
    ("costs",),
    ("forgetting",),
    ("compare", "100", "latest"),
    ("gc", "--dry-run"),
    ("alerts", "list"),
    ("engine", "status"),
    ("accept", "latest", "facts", "--reason", "meant"),
    ("silence", "facts", "--for", "4h", "--reason", "meant"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML)
    history = open_project(tmp_path / "tracker.toml").history
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        history.append(record)
        history.append_report(report)
    return tmp_path


@pytest.mark.usefixtures("project")
def test_every_command_prints_what_its_schema_says() -> None:
    published = schemas()
    for arguments in COMMANDS:
        done = CliRunner().invoke(cli, [*arguments, "--json"])
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        document = json.loads(done.stdout)
        assert document["result"] is not None
        schema = json.loads(published[f"{document['command'].replace(' ', '-')}.json"])
        jsonschema.validate(document, schema)
