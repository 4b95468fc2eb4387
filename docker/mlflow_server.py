"""Starts the MLflow server of docker-compose.yml, brings its tables up to date, or gives the tracker its user.

    python mlflow_server.py            # serve
    python mlflow_server.py upgrade    # after an update of MLflow; stop the server first and make a backup
    python mlflow_server.py user       # while it serves; a user that is there gets the password of the file

MLflow takes passwords from the environment only: for every variable `NAME_FILE` the first line of the file that it
names becomes `NAME`, of this process and what it turns into. All other settings are MLflow's own variables.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

SUFFIX = "_FILE"
ADMIN = "admin"
"""Of mlflow-auth.ini."""
TIMEOUT_S = 60.0


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
    import boto3  # here: it takes a second, and only this needs it
    from botocore.exceptions import BotoCoreError, ClientError

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
        sys.exit(f"mlflow_server: cannot create bucket {destination.netloc}: {error}")


def give_user(environment: Mapping[str, str]) -> str:
    """Create the user MLFLOW_TRACKING_USERNAME, no administrator, or give it the password; return what was done.

    Raises:
        SystemExit: the server does not answer, or refuses the administrator.
    """
    name, password = environment["MLFLOW_TRACKING_USERNAME"], environment["MLFLOW_TRACKING_PASSWORD"]
    account = {"username": name, "password": password}
    try:
        try:
            _ask(environment, "GET", f"users/get?{urlencode({'username': name})}")
        except HTTPError as error:
            if error.code != 404:
                raise
            _ask(environment, "POST", "users/create", account)
            return f"the user {name} is made"
        _ask(environment, "PATCH", "users/update-password", account)
    except HTTPError as error:
        said = f"{error} {error.read().decode(errors='replace')}".strip()
        hint = "write the password that it has in MLflow into its file" if error.code == 401 else "read MLflow's log"
        sys.exit(f"mlflow_server: MLflow denied access to {ADMIN}: {said}: {hint}")
    except OSError as error:
        sys.exit(f"mlflow_server: cannot reach MLflow at {environment['MLFLOW_TRACKING_URI']}: {error}")
    return f"the user {name} is there and has the password of its file"


def main() -> None:
    """Become MLflow, or ask it."""
    environment = with_secrets(os.environ)
    if sys.argv[1:] == ["user"]:
        sys.stdout.write(f"{give_user(environment)}\n")
        return
    if sys.argv[1:] == ["upgrade"]:
        command = ["mlflow", "db", "upgrade", environment["MLFLOW_BACKEND_STORE_URI"]]
    else:
        make_bucket(environment)
        command = ["mlflow", "server", "--app-name", "basic-auth"]
    os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted


# --- private


def _ask(environment: Mapping[str, str], method: str, route: str, body: Mapping[str, str] | None = None) -> None:
    key = base64.b64encode(f"{ADMIN}:{environment['MLFLOW_AUTH_ADMIN_PASSWORD']}".encode()).decode()
    request = Request(  # noqa: S310 - the address is ours
        f"{environment['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/{route}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {key}", "Content-Type": "application/json"},
        method=method,
    )
    with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        answer.read()


def _first_line(name: str, path: Path) -> str:
    try:
        first, *_ = path.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"mlflow_server: cannot read {path} ({name}): {error}")
    if not first:
        sys.exit(f"mlflow_server: {path} ({name}) has an empty first line")
    return first


if __name__ == "__main__":
    main()
