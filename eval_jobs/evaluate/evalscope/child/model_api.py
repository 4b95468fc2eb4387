"""Strict version of EvalScope's model client. Only the evaluator's child imports this."""

import threading
from collections.abc import Sequence
from typing import Any

from evalscope.api.dataset import Sample
from evalscope.api.messages import ChatMessage, ChatMessageUser
from evalscope.api.model import GenerateConfig, ModelOutput
from evalscope.models.openai_compatible import OpenAICompatibleAPI

from eval_jobs.evaluate.asking.circuit_breaker import CircuitBreaker
from eval_jobs.evaluate.asking.http_client import ModelClient, api_key, is_alive
from eval_jobs.evaluate.asking.limiter import ConcurrencyLimiter
from eval_jobs.evaluate.common.answer_check import check_answer
from eval_jobs.evaluate.common.protocol import Message, RetryPolicy


class StrictAPI(OpenAICompatibleAPI):  # type: ignore[misc]
    """EvalScope's client, except that a rejected request is an error and not an answer to be scored.

    All benchmarks of a request share one, with its connections, its slots and its circuit breaker.
    """

    def __init__(self, request: Message) -> None:
        key = api_key(request["api_key_env"])
        self.limiter = ConcurrencyLimiter(request["concurrency"])
        max_tokens = max(task["task"]["generation_config"]["max_tokens"] for task in request["tasks"])
        self._http = ModelClient(request["timeout_s"], self.limiter, secret=key, max_tokens=max_tokens)
        super().__init__(
            model_name=request["model"],
            base_url=request["base_url"],
            api_key=key,
            config=GenerateConfig(**request["tasks"][0]["task"]["generation_config"]),
            max_retries=0,
            timeout=request["timeout_s"],
            http_client=self._http,
        )
        own_engine = bool(request["own_engine"])
        self.breaker = CircuitBreaker(
            is_alive=lambda: is_alive(self._http, str(self.base_url).rstrip("/")),
            limiter=self.limiter,
            own_engine=own_engine,
            retry_policy=RetryPolicy(**request["retry_policy"]),
        )
        self._signed_by = str(request["model"]) if own_engine else ""
        """Model name to check in responses: random for our own engine; "" (no check) for others, which use any name."""
        self.thread = threading.local()
        """`seed`: the seed of this thread's sample."""
        self._answered: Sample | None = None
        self._unanswered: tuple[Sample, ...] = ()

    def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: object, config: GenerateConfig
    ) -> ModelOutput:
        """Send a request through the circuit breaker, with the seed of the sample's repeat."""
        seed = getattr(self.thread, "seed", config.seed)
        config = config.model_copy(update={"seed": seed})
        return self.breaker.ask(lambda: super(StrictAPI, self).generate(input, tools, tool_choice, config))

    def take_controls(self, answered: Sequence[Sample], to_ask: Sequence[Sample]) -> None:
        """Choose the samples of control requests: one that was answered before, else a short and a late one.

        Each benchmark calls this; they are chosen from the samples of all benchmarks so far.
        """
        self._answered = self._answered or next(iter(answered), None)
        short = sorted((*self._unanswered[:1], *to_ask), key=lambda sample: len(str(sample.input)))[:1]
        self._unanswered = (*short, *(to_ask[-1:] or self._unanswered[1:]))
        self.breaker.control = self._ask_controls

    def on_response(self, response: Message) -> None:
        """Reject an invalid response: EvalScope would score a missing text as an empty one."""
        check_answer(response, model=self._signed_by)

    def handle_bad_request(self, ex: Exception) -> ModelOutput:
        """Raise the error of a rejected request: EvalScope would score its text as the model's answer."""
        raise ex

    def _ask_controls(self) -> None:
        """Send control requests until one is answered; raise the error of the last one if none is."""
        samples = self._unanswered if self._answered is None else (self._answered,)
        for sample in samples:
            question = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else sample.input
            try:
                super().generate(question, [], "none", self.config)
            except Exception:
                if sample is samples[-1]:
                    raise
            else:
                return
