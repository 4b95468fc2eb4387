"""Our models for lm-evaluation-harness: its own API models, with every request sent through a `Session`.

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
"""The harness's `Instance`s, or their tokens."""

_TOKENS: dict[str, object] = {"tokenizer_backend": "huggingface", "tokenized_requests": True, "add_bos_token": True}
"""The harness counts tokens: it must send the tokens it counts, with the model's BOS token if there is one."""


def register(session: Session, *, tokenizer: str) -> None:
    """Register our models with the harness; `tokenizer` is a folder, needed for likelihoods only."""
    Completions.asking = Chat.asking = session
    Completions.tokenizer_folder = tokenizer
    register_model(TEXT_MODEL)(Completions)
    register_model(CHAT_MODEL)(Chat)


class Completions(LocalCompletionsAPI):  # type: ignore[misc]
    """Model for text completions and likelihoods."""

    asking: ClassVar[Session]
    tokenizer_folder: ClassVar[str]

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self._settings = settings

    def generate_until(self, requests: Requests, **_: object) -> list[str]:
        """Answer questions."""
        return _generated(self, requests)

    def loglikelihood(self, requests: Requests, **more: object) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation, and whether it is the greedy one."""
        self._load_tokenizer()
        found: list[tuple[float, bool]] = super().loglikelihood(requests, **more)
        return found

    def loglikelihood_rolling(self, requests: Requests, **more: object) -> list[float]:
        """Return the log-likelihood of each whole text."""
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
        """Load the tokenizer on first use, because loading takes seconds."""
        if self.tokenizer is not None:
            return
        if not self.tokenizer_folder:
            raise EvaluateError(
                f"`{self.asking.journal.name}` needs log-likelihoods, but the tokenizer of the model is unknown",
                hint="save the tokenizer in the checkpoint folder",
            )
        super().__init__(**self._settings | _TOKENS | {"tokenizer": self.tokenizer_folder})
        for name in ("eot_token_id", "eos_string", "prefix_token_id"):  # cached while there was no tokenizer
            self.__dict__.pop(name, None)


class Chat(LocalChatCompletion):  # type: ignore[misc]
    """Model for chat completions."""

    asking: ClassVar[Session]

    def generate_until(self, requests: Requests, **_: object) -> list[str]:
        """Answer questions."""
        return _generated(self, requests)

    def loglikelihood(self, requests: Requests, **_: object) -> NoReturn:
        """Raise EvaluateError: chat completions have no likelihoods of a prompt."""
        raise EvaluateError(
            f"`{self.asking.journal.name}` needs {len(requests)} log-likelihoods, which chat completions do not return",
            hint="remove options.chat",
        )

    loglikelihood_rolling = loglikelihood


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
    # The harness means it for overriding, and it may change its arguments.
    create = model._create_payload  # noqa: SLF001
    body: Json = create(asked, generate=True, gen_kwargs=copy.deepcopy(settings), seed=0)
    return body
