"""Sends the requests of the harness and keeps the data that it loses. Independent of the harness itself.

    with Session(request, send, key="EMPTY") as session:
        replies = session.ask([HarnessRequest(body={"prompt": "1+1=", ...}, place=("sums", 0))])     # None: no answer
        session.finish()                  # raises if too many answers are missing

The harness does not record whether an answer was truncated or rejected, and scores both like any other. It keeps no
answers of a run that ended early. A task may override the suite's sampling parameters. Here every request is sent as
planned, and every response is checked and stored: a later run reuses it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from eval_jobs import limits
from eval_jobs.errors import EvaluateError
from eval_jobs.evaluate.asking.circuit_breaker import CircuitBreaker, NoAnswer
from eval_jobs.evaluate.asking.failures import StatusError
from eval_jobs.evaluate.asking.http_client import ModelClient, is_alive
from eval_jobs.evaluate.asking.journal import Failure, Journal
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.evaluate.asking.pipes import Send
from eval_jobs.evaluate.asking.shared_pool import SharedPool, n_threads
from eval_jobs.evaluate.common.answer_check import CUT, FILTERED, check_answer
from eval_jobs.evaluate.common.parse import Place
from eval_jobs.evaluate.common.protocol import Message, RetryPolicy
from eval_jobs.evaluate.lm_eval.child.answers import Answers
from eval_jobs.evaluate.lm_eval.child.likelihoods import asks_likelihoods, unsupported_request
from eval_jobs.evaluate.lm_eval.outcomes import NOWHERE, RequestOutcome, write_outcomes
from eval_jobs.host.bounded.client import MAX_BYTES
from eval_jobs.host.bounded.replies import token_count
from eval_jobs.identity import content_hash
from eval_jobs.types import SampleStatus

ANSWERS_FILE = "answers.jsonl"
_ASKED_OTHERWISE = ("max_gen_toks", "max_new_tokens", "max_completion_tokens", "do_sample")
"""Names under which tasks may set parameters of the suite."""

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class HarnessRequest:
    """One request of the harness."""

    body: Json
    place: Place = NOWHERE
    """Task and number of its sample."""


class Session:
    """One run of the harness; a context manager. Used from one thread, while a pool sends the requests."""

    def __init__(self, request: Message, send: Send, *, key: str) -> None:
        """Read the responses of earlier runs; no request is sent yet."""
        task = request["tasks"][0]
        self.journal = Journal(task, send)
        self._request = request
        self._sampling: Json = task["sampling"]
        self._limiter = ConcurrencyLimiter(request["concurrency"])
        max_tokens = int(self._sampling["max_tokens"])
        self._client = ModelClient(request["timeout_s"], self._limiter, secret=key, max_tokens=max_tokens)
        self._retry_policy = RetryPolicy(**request["retry_policy"])
        self._breaker = CircuitBreaker(
            is_alive=lambda: is_alive(self._client, request["base_url"]),
            limiter=self._limiter,
            own_engine=request["own_engine"],
            retry_policy=self._retry_policy,
        )
        self._pool = SharedPool(n_threads(request["concurrency"]))
        self._answers = Answers(self.journal.folder / ANSWERS_FILE)
        self._keys: set[str] = set()
        self._times_asked: Counter[str] = Counter()
        self._outcomes: list[tuple[Place, RequestOutcome]] = []

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.__exit__(*error)
        self._client.close()

    def ask(self, questions: Sequence[HarnessRequest]) -> list[Json | None]:
        """Return the response to each request; None if there is none.

        Raises:
            EndpointFailed, EndpointRefused: the server failed.
            EvaluateError: it does not return the requested likelihoods.
            DiskFull, StoreError: a response cannot be stored.
        """
        bodies = [self._as_planned(question.body) for question in questions]
        keys = [_key_of(body) for body in bodies]
        self._keys.update(keys)
        self.journal.planned = len(self._keys)
        self._ask_all(dict(zip(keys, bodies, strict=True)))
        self._outcomes += [(question.place, self._outcome(key)) for question, key in zip(questions, keys, strict=True)]
        return [self._answers.of(key) for key in keys]

    def finish(self) -> None:
        """Check that enough requests were answered, and write the outcome of each request.

        Raises:
            EndpointFailed: the server may be at fault; a retry sends the unanswered requests.
            DiskFull, StoreError: the outcomes cannot be written.
        """
        self.journal.check(
            hint="see the server log; log-likelihood tasks need an engine that returns log probabilities of prompts"
        )
        write_outcomes(self.journal.folder, self._outcomes)

    def _as_planned(self, body: Json) -> Json:
        """Return the request with the suite's parameters and its own seed, without which all repeats would be equal."""
        named: Json = body | {"model": self._request["model"]}
        if asks_likelihoods(body):
            return named
        planned: Json = {name: value for name, value in named.items() if name not in _ASKED_OTHERWISE}
        planned |= self._sampling
        key = _key_of(planned)
        seed = int(self._sampling["seed"]) + self._times_asked[key]
        self._times_asked[key] += 1
        return planned | {"seed": seed}

    def _ask_all(self, bodies: Mapping[str, Json]) -> None:
        """Send all requests; then, after each pause of `lost_s`, those for which the server may be at fault."""
        left = {key: body for key, body in bodies.items() if key not in self._answers}
        answered = [body for key, body in bodies.items() if key not in left]
        controls = answered[:1] or list(left.values())
        self._breaker.control = lambda: self._ask_controls(controls)
        for pause_s in (*self._retry_policy.lost_s, None):
            self._pass(left)
            doubtful = self.journal.doubtful
            left = {key: body for key, body in left.items() if (key, 0) in doubtful}
            if pause_s is None or not left:
                break
            self._limiter.stopped.wait(pause_s)
            self.journal.begin_again(only={(key, 0) for key in left})

    def _pass(self, bodies: Mapping[str, Json]) -> None:
        self.journal.begin(metric="", to_ask=len(bodies))
        with self._pool.each(list(bodies.items()), self._ask_one, cost=1.0) as ended:
            for (key, _), outcome in ended:
                error = outcome.exception()
                if isinstance(error, NoAnswer):
                    failure = Failure(detail=str(error), answered=False, may_pass=error.may_pass)
                    self.journal.failures[key, 0] = failure
                elif self._breaker.error is not None and error is not None:
                    raise self.journal.stopped(self._breaker.error, self._request["base_url"]) from error
                elif error is not None:
                    raise error
                else:
                    self._answers.keep(key, outcome.result())
                self.journal.step(answered=error is None)

    def _ask_one(self, item: tuple[str, Json]) -> Json:
        _, body = item
        try:
            reply = self._breaker.ask(lambda: self._send(body))
        finally:
            self._limiter.release()
        if not asks_likelihoods(body):
            if refusal := _refusal_in(reply):
                raise NoAnswer(refusal, may_pass=False)
        elif problem := unsupported_request(body, reply):  # then no sample of the benchmark would have likelihoods
            raise EvaluateError(
                f"the server does not return log probabilities of prompt tokens: {problem}",
                hint="use generation tasks, or an engine that returns them, such as vLLM",
            )
        return reply

    def _send(self, body: Json) -> Json:
        route = "chat/completions" if "messages" in body else "completions"
        # Likelihoods are as many as the tokens of the prompt.
        extensions = {MAX_BYTES: limits.ANSWER.most} if asks_likelihoods(body) else {}
        response = self._client.post(f"{self._request['base_url']}/{route}", json=body, extensions=extensions)
        if response.status_code != httpx.codes.OK:
            raise StatusError(response)
        reply: Json = response.json()
        model = self._request["model"] if self._request["own_engine"] else ""
        check_answer(reply, model=model, is_chat="messages" in body)
        reply["choices"][0]["index"] = 0  # the harness uses it as a position
        return reply

    def _ask_controls(self, bodies: Sequence[Json]) -> None:
        """Send the shortest request; if it fails, send the last one and let its error through."""
        try:
            self._send(min(bodies, key=lambda body: len(str(body))))
        except Exception:
            if len(bodies) == 1:
                raise
            self._send(bodies[-1])

    def _outcome(self, key: str) -> RequestOutcome:
        reply = self._answers.of(key)
        if reply is None:
            return RequestOutcome(status=SampleStatus.ERROR, detail=self.journal.failures[key, 0].detail)
        usage = reply.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        is_cut = any(choice.get("finish_reason") in CUT for choice in reply["choices"])
        return RequestOutcome(
            status=SampleStatus.TRUNCATED if is_cut else SampleStatus.SCORED,
            input_tokens=token_count(usage.get("prompt_tokens")),
            output_tokens=token_count(usage.get("completion_tokens")),
        )


def _key_of(body: Json) -> str:
    """Return the key of a request, equal in every run: without the model name, which our engine changes each time."""
    return content_hash({name: value for name, value in body.items() if name != "model"})


def _refusal_in(reply: Json) -> str:
    """Return why a complete response is no answer to score; empty if it is one."""
    choice = reply["choices"][0]
    if choice.get("finish_reason") == FILTERED:
        return "the server filtered the answer"
    text = choice["message"].get("content") if "message" in choice else choice.get("text")
    if isinstance(text, str):
        return ""
    return "response has no text"
