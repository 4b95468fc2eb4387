"""Our model for lm-evaluation-harness: its own API models, but that every question goes through a `Session`.

register(session, tokenizer="/checkpoints/100")     # then `lm_eval run --model tracker-completions ...`
"""

import copy
import json
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from lm_eval.api.registry import register_model
from lm_eval.models.api_models import JsonChatStr, create_image_prompt
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

from eval_jobs.errors import EvaluateError
from eval_jobs.evaluate.lm_eval.child.session import HarnessRequest, Json, Session
from eval_jobs.evaluate.lm_eval.command import CHAT_MODEL, TEXT_MODEL
from eval_jobs.harness.samples import NO_ANSWER, NO_LIKELIHOOD

Requests = Sequence[Any]
"""The harness's `Instance`s, or the tokens that it made of them."""

_TOKENS: dict[str, object] = {
    "tokenizer_backend": "huggingface",
    "tokenized_requests": True,
    "add_bos_token": True,
}
"""The harness counts tokens: what it counts must be what is asked, with the model's first token where it has one."""


def register(session: Session, *, tokenizer: str) -> None:
    """Make our models known to the harness; `tokenizer` is a folder, which likelihoods need and answers do not."""
    Completions.asking = Chat.asking = session
    Completions.tokenizer_folder = tokenizer
    register_model(TEXT_MODEL)(Completions)
    register_model(CHAT_MODEL)(Chat)


class Completions(LocalCompletionsAPI):  # type: ignore[misc]
    """Asks with a text, and compares likelihoods."""

    asking: ClassVar[Session]
    tokenizer_folder: ClassVar[str]

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self._settings = settings

    def generate_until(self, requests: Requests, **_: object) -> list[str]:
        """Answer questions."""
        return _generated(self, requests)

    def loglikelihood(self, requests: Requests, **more: object) -> list[tuple[float, bool]]:
        """Say how likely continuations are."""
        self._load_tokenizer()
        found: list[tuple[float, bool]] = super().loglikelihood(requests, **more)
        return found

    def loglikelihood_rolling(self, requests: Requests, **more: object) -> list[float]:
        """Say how likely whole texts are."""
        self._load_tokenizer()
        found: list[float] = super().loglikelihood_rolling(requests, **more)
        return found

    def _loglikelihood_tokens(self, requests: Requests, **_: object) -> list[tuple[float, bool]]:
        tokens, context_lengths, _names = self.batch_loglikelihood_requests([requests])
        bodies = [self._create_payload([sent], generate=False, seed=self._seed) for sent in tokens]
        replies = self.asking.ask([HarnessRequest(body=body) for body in bodies])
        found: list[tuple[float, bool]] = []
        for reply, sent, context_length in zip(replies, tokens, context_lengths, strict=True):
            if reply is None:
                found.append((NO_LIKELIHOOD, False))
            else:
                found += self.parse_logprobs(reply, tokens=[sent], ctxlens=[context_length])
        return found

    def _load_tokenizer(self) -> None:
        """Begin to count tokens, now that it is known that somebody does: loading takes seconds."""
        if self.tokenizer is not None:
            return
        if not self.tokenizer_folder:
            raise EvaluateError(
                f"`{self.asking.journal.name}` needs log-likelihoods, but the tokenizer of the model is unknown",
                hint="save the tokenizer in the checkpoint folder",
            )
        super().__init__(**self._settings | _TOKENS | {"tokenizer": self.tokenizer_folder})
        for name in ("eot_token_id", "eos_string", "prefix_token_id"):  # remembered from when there was none
            self.__dict__.pop(name, None)


class Chat(LocalChatCompletion):  # type: ignore[misc]
    """Asks with messages."""

    asking: ClassVar[Session]

    def generate_until(self, requests: Requests, **_: object) -> list[str]:
        """Answer questions."""
        return _generated(self, requests)

    def loglikelihood(self, requests: Requests, **_: object) -> NoReturn:
        """Refuse: answers to messages have no likelihoods of a prompt."""
        raise EvaluateError(
            f"`{self.asking.journal.name}` needs {len(requests)} log-likelihoods, which chat completions do not return",
            hint="remove options.chat",
        )

    loglikelihood_rolling = loglikelihood


# --- private


def _generated(model: Completions | Chat, requests: Requests) -> list[str]:
    questions = [
        HarnessRequest(body=_body_of(model, request), place=(str(request.task_name), int(request.doc_id)))
        for request in requests
    ]
    replies = model.asking.ask(questions)
    return [NO_ANSWER if reply is None else str(model.parse_generations(reply)[0]) for reply in replies]


def _body_of(model: Completions | Chat, request: Any) -> Json:  # noqa: ANN401 - the harness's
    context, settings, *more = request.args
    if more:
        images = more[0]["visual"][: model.max_images]
        context = JsonChatStr(json.dumps(create_image_prompt(images, json.loads(context.prompt))))
    asked = context if isinstance(context, str) else model.create_message([context])
    # Meant for overriding; what it is given is its own to change.
    create = model._create_payload  # noqa: SLF001
    body: Json = create(asked, generate=True, gen_kwargs=copy.deepcopy(settings), seed=0)
    return body
