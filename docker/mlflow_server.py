"""Starts the MLflow server of docker-compose.yml, or brings its tables up to date.

    python mlflow_server.py            # serve
    python mlflow_server.py upgrade    # after an update of MLflow; stop the server first and make a backup

MLflow takes passwords from the environment only: for every variable `NAME_FILE` the first line of the file that it
names becomes `NAME`, of this process and what it turns into. All other settings are MLflow's own variables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

SUFFIX = "_FILE"


def with_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with each file's first line in the place of its name.

    Raises:
        SystemExit: a file cannot be read, or is empty.
    """
    result = {name: value for name, value in environment.items() if not name.endswith(SUFFIX)}
    for name, path in environment.items():
        if name.endswith(SUFFIX):
            result[name.removesuffix(SUFFIX)] = _first_line(name, Path(path))
    return result


def make_bucket(environment: Mapping[str, str]) -> None:
    """Create the bucket that files go to, where there is none; another destination needs none.

    Raises:
        SystemExit: the store does not answer, or refuses the key.
    """
    destination = urlsplit(environment["MLFLOW_ARTIFACTS_DESTINATION"])
    if destination.scheme != "s3":
        return
    import boto3  # noqa: PLC0415 - takes a second, and only this needs it
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        client = boto3.client(
            "s3",
            endpoint_url=environment["MLFLOW_S3_ENDPOINT_URL"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )
        known = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
        if destination.netloc not in known:
            client.create_bucket(Bucket=destination.netloc)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"mlflow_server: the bucket {destination.netloc} cannot be made: {error}")


def main() -> None:
    """Become MLflow."""
    environment = with_secrets(os.environ)
    if sys.argv[1:] == ["upgrade"]:
        command = ["mlflow", "db", "upgrade", environment["MLFLOW_BACKEND_STORE_URI"]]
    else:
        make_bucket(environment)
        command = ["mlflow", "server", "--app-name", "basic-auth"]
    os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted


# --- private


def _first_line(name: str, path: Path) -> str:
    try:
        first, *_ = path.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"mlflow_server: {name} names {path}, which cannot be read: {error}")
    if not first:
        sys.exit(f"mlflow_server: {name} names {path}, which has nothing in its first line")
    return first


if __name__ == "__main__":
    main()
