"""Keeps one comment on a pull request of GitHub or a merge request of GitLab, updated by later jobs.

Job variables and REST API: docs.github.com/rest/issues/comments, docs.gitlab.com/api/notes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from eval_jobs.errors import ChannelUnreachable, ConfigError

PAGE_SIZE, MAX_PAGES = 100, 50
TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """Where its comments are, and how they are changed."""

    comments_url: str
    """Lists comments, and takes new ones."""
    comment_url: str
    """Prefix of the address of one comment."""
    update_method: str
    headers: Mapping[str, str]
    job: str
    """Name of the job, of which each has its own comment."""
    job_url: str


def pull_request_of(environment: Mapping[str, str]) -> PullRequest | None:
    """Return the pull request of this CI job, None if the job is of none.

    Raises:
        ConfigError: the token is missing.
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        return _of_github(environment)
    if environment.get("GITLAB_CI") == "true":
        return _of_gitlab(environment)
    return None


def put_comment(page: PullRequest, text: str, *, marker: str) -> None:
    """Update the newest comment that contains `marker`, or write a new one.

    Raises:
        ChannelUnreachable: the server does not respond or refuses the request.
    """
    body = {"body": f"{marker}\n{text}"}
    try:
        with httpx.Client(headers=dict(page.headers), timeout=TIMEOUT_S) as client:
            for number in reversed([*_marked(client, page, marker)]):
                if client.request(page.update_method, f"{page.comment_url}/{number}", json=body).is_success:
                    return  # others may refuse: another author copied the marker
            client.post(page.comments_url, json=body).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise _failed(page, f"HTTP {error.response.status_code}") from error
    except (httpx.HTTPError, httpx.InvalidURL, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _failed(page, f"unexpected response ({type(error).__name__} {error})") from error


def _of_github(environment: Mapping[str, str]) -> PullRequest | None:
    kind, _, rest = environment.get("GITHUB_REF", "").removeprefix("refs/").partition("/")
    number = rest.partition("/")[0]
    if kind != "pull" or not number.isdecimal():
        return None
    repository = environment.get("GITHUB_REPOSITORY", "")
    issues = f"{environment.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{repository}/issues"
    server = environment.get("GITHUB_SERVER_URL", "https://github.com")
    return PullRequest(
        comments_url=f"{issues}/{number}/comments",
        comment_url=f"{issues}/comments",
        update_method="PATCH",
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {_token(environment, 'GITHUB_TOKEN', 'pull-requests: write')}",
        },
        job=f"{environment.get('GITHUB_WORKFLOW', '')}/{environment.get('GITHUB_JOB', '')}",
        job_url=f"{server}/{repository}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}",
    )


def _of_gitlab(environment: Mapping[str, str]) -> PullRequest | None:
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdecimal():
        return None
    project = quote(environment.get("CI_MERGE_REQUEST_PROJECT_ID", environment.get("CI_PROJECT_ID", "")), safe="")
    notes = f"{environment.get('CI_API_V4_URL', '')}/projects/{project}/merge_requests/{number}/notes"
    return PullRequest(
        comments_url=notes,
        comment_url=notes,
        update_method="PUT",
        headers={"PRIVATE-TOKEN": _token(environment, "GITLAB_TOKEN", "api")},
        job=environment.get("CI_JOB_NAME", ""),
        job_url=environment.get("CI_JOB_URL", ""),
    )


def _token(environment: Mapping[str, str], name: str, scope: str) -> str:
    token = environment.get(name, "")
    if not token:
        raise ConfigError(f"--comment requires {name}", hint=f"pass a token with the permission `{scope}` as {name}")
    return token


def _marked(client: httpx.Client, page: PullRequest, marker: str) -> Iterator[int]:
    """Yield the numbers of the comments with `marker`, oldest first."""
    for number in range(1, MAX_PAGES + 1):
        asked: dict[str, str | int] = {"per_page": PAGE_SIZE, "page": number}
        if page.update_method == "PUT":
            asked["sort"] = "asc"  # GitLab begins with the newest
        response = client.get(page.comments_url, params=asked).raise_for_status()
        comments: list[dict[str, Any]] = response.json()
        for comment in comments:
            if str(comment.get("body", "")).startswith(marker):
                yield int(comment["id"])
        if len(comments) < PAGE_SIZE:
            return


def _failed(page: PullRequest, reason: str) -> ChannelUnreachable:
    return ChannelUnreachable(
        f"cannot write the comment at {page.comments_url}: {reason}", hint="check the token and its permissions"
    )
