"""`tracker history` answers at once, however large the project is."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_it_loads_neither_statistics_nor_stores() -> None:
    program = (
        "import sys; import tracker.cli.commands.to_inspect.history;"
        "print(*sorted({'scipy', 'pandas', 'alembic', 'mlflow', 's3fs', 'fsspec', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
