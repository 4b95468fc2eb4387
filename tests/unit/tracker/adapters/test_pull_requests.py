"""A pull request has one comment of each job, on GitHub and on GitLab, however often the job runs."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from eval_jobs.errors import ChannelUnreachable, ConfigError
from tracker.adapters.pull_requests import pull_request_of, put_comment

MARKER = "<!-- tracker gate: gate/gate -->"
TOKEN = {"Authorization": "Bearer t", "PRIVATE-TOKEN": "t"}


class Service:
    """The comments of one request, as both services list and change them."""

    def __init__(self, prefix: str, comment_prefix: str, update: str) -> None:
        self.prefix, self.comment_prefix, self.update = prefix, comment_prefix, update
        self.comments = [{"id": n, "body": f"remark {n}"} for n in range(1, 102)]
        self.refused: set[int] = set()
        self.answer = ""

    def reply(self, method: str, path: str, body: str, headers: Mapping[str, str]) -> tuple[int, str]:
        if not any(headers.get(name) == value for name, value in TOKEN.items()):
            return 401, "{}"
        if self.answer:
            return 200, self.answer
        place, number = urlsplit(path), urlsplit(path).path.rpartition("/")[2]
        if method == "GET" and place.path == self.prefix:
            page = int(parse_qs(place.query)["page"][0])
            return 200, json.dumps(self.comments[100 * (page - 1) : 100 * page])
        if method == "POST" and place.path == self.prefix:
            self.comments.append({"id": len(self.comments) + 1, **json.loads(body)})
            return 201, "{}"
        if (
            method == self.update
            and place.path == f"{self.comment_prefix}/{number}"
            and int(number) not in self.refused
        ):
            self.comments[int(number) - 1]["body"] = json.loads(body)["body"]
            return 200, "{}"
        return 403, "{}"


@contextmanager
def serving(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            sent = self.rfile.read(length).decode()
            status, text = service.reply(self.command, self.path, sent, dict(self.headers))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815 - the names are http.server's

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def github(url: str, **changed: str) -> dict[str, str]:
    base = {"GITHUB_ACTIONS": "true", "GITHUB_REF": "refs/pull/7/merge", "GITHUB_REPOSITORY": "me/models"}
    job = {"GITHUB_WORKFLOW": "gate", "GITHUB_JOB": "gate", "GITHUB_RUN_ID": "5", "GITHUB_TOKEN": "t"}
    return base | job | {"GITHUB_API_URL": url} | changed


def gitlab(url: str) -> dict[str, str]:
    job = {"CI_MERGE_REQUEST_IID": "7", "CI_PROJECT_ID": "3", "CI_JOB_NAME": "gate", "CI_JOB_URL": f"{url}/jobs/5"}
    return job | {"GITLAB_CI": "true", "CI_API_V4_URL": url, "GITLAB_TOKEN": "t"}


NOTES = "/projects/3/merge_requests/7/notes"
SERVICES = {
    "github": (github, "/repos/me/models/issues/7/comments", "/repos/me/models/issues/comments", "PATCH"),
    "gitlab": (gitlab, NOTES, NOTES, "PUT"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_the_first_job_writes_a_comment_and_later_ones_update_it(name: str) -> None:
    environment, prefix, comment_prefix, update = SERVICES[name]
    service = Service(prefix, comment_prefix, update)
    with serving(service) as url:
        page = pull_request_of(environment(url))
        assert page is not None
        assert page.job_url.endswith("5")
        for text in ("first", "second"):
            put_comment(page, text, marker=MARKER)
        assert [c["body"] for c in service.comments[101:]] == [f"{MARKER}\nsecond"]
        service.comments.append({"id": 103, "body": f"{MARKER}\ncopied by another author"})
        service.refused.add(103)
        put_comment(page, "third", marker=MARKER)
        assert service.comments[101]["body"] == f"{MARKER}\nthird"
        assert len(service.comments) == 103


def test_a_job_without_a_pull_request_has_no_comment_and_a_missing_token_is_named() -> None:
    assert pull_request_of({}) is None
    assert pull_request_of(github("http://x", GITHUB_REF="refs/heads/main")) is None
    assert pull_request_of(gitlab("http://x") | {"CI_MERGE_REQUEST_IID": ""}) is None
    with pytest.raises(ConfigError, match="--comment requires GITHUB_TOKEN"):
        pull_request_of(github("http://x") | {"GITHUB_TOKEN": ""})


@pytest.mark.parametrize(
    "answer", ["<html>", '{"message": "moved"}', '[{"body": 1}, "x"]', f'[{{"body": "{MARKER}"}}]']
)
def test_a_service_that_answers_otherwise_is_an_error_with_its_address(answer: str) -> None:
    service = Service(*SERVICES["github"][1:])
    service.answer = answer
    with serving(service) as url:
        page = pull_request_of(github(url))
        assert page is not None
        with pytest.raises(ChannelUnreachable, match="repos/me/models/issues/7"):
            put_comment(page, "text", marker=MARKER)
        wrong = pull_request_of(github(url) | {"GITHUB_TOKEN": "other"})
        assert wrong is not None
        with pytest.raises(ChannelUnreachable, match="HTTP 401"):
            put_comment(wrong, "text", marker=MARKER)
