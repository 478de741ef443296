"""What the engines of scalar reward models share: the text that such a model reads, and the engine that writes none.

A scalar reward model reads its own chat template over the prompt and the response, as the assistant's answer, without the
start of a further turn. Criteria, a rubric, a reference and evidence are not part of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts, RawScore
from tirjudge.engines.checkpoint import read_json
from tirjudge.engines.scripted import ByteTokenizer
from tirjudge.errors import CheckpointError, EngineUnavailable, RequestNotShown, TemplateFailed, TurnRefused
from tirjudge.template_options import TemplateOptions
from tirjudge.types import ChatMessage, Completion, Sampling

MAX_CONCURRENCY = 32
"""Default maximum number of texts that are scored at once."""

NO_LIMIT = 10**9
"""Values of `model_max_length` from this on mean that a tokenizer sets no limit."""

Conversation = list[dict[str, str]]
"""Messages with `role` and `content`; the last one is the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadText:
    """A conversation as a scalar reward model reads it."""

    token_ids: Sequence[int]
    """Ids of the text."""
    bos_id: int | None
    """Id of the token that the tokenizer writes at the beginning of a sequence. None: it writes none."""


class ScalarEngine(BaseEngine):
    """Base of an engine that gives one number for a response and writes no text.

    Args:
        max_concurrency: maximum number of texts that are scored at once. Others wait in order.
    """

    facts = EngineFacts(generates=False, scores=True, constrains=False)
    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, *, max_concurrency: int = MAX_CONCURRENCY) -> None:
        self.tokenizer = ByteTokenizer()
        self._slots = asyncio.Semaphore(max_concurrency)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """
        Raises:
            TurnRefused: always.
        """
        raise TurnRefused("this judge is a scalar reward model, so it cannot write text; send a request for a judgment")

    async def score(self, prompt: str | Sequence[ChatMessage], response: str) -> RawScore:
        async with self._slots:
            messages = conversation(prompt, response)
            control_tokens = await self.control_tokens([message["content"] for message in messages])
            broken = [{**message, "content": control_tokens.broken(message["content"])} for message in messages]
            return await self.score_conversation(broken)

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        """Return the strings in untrusted texts that the model reads as control tokens."""
        raise NotImplementedError

    async def read_text(self, messages: Conversation) -> ReadText | None:
        """Return a conversation as the model reads it; None: not known."""
        return None

    async def activated_score(self, messages: Conversation) -> float | None:
        """Return the score of a conversation after the activation function of the server; None: it has none."""
        return None

    async def score_conversation(self, messages: Conversation) -> RawScore:
        """Score the last message of a conversation whose control tokens are broken.

        Raises:
            PromptTooLong, EngineUnavailable: as in `Engine.score`.
        """
        raise NotImplementedError


def conversation(prompt: str | Sequence[ChatMessage], response: str) -> Conversation:
    """Return the messages that a scalar reward model reads.

    >>> conversation("Hi", "Hello!")
    [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    asked = [ChatMessage(role="user", content=prompt)] if isinstance(prompt, str) else prompt
    messages = [{"role": message.role, "content": message.content} for message in asked]
    return [*messages, {"role": "assistant", "content": response}]


def one_number(values: Sequence[float], *, origin: str) -> float:
    """Return the only output of a scalar reward model.

    Args:
        values: outputs for one text.
        origin: URL or folder of the model, for messages.

    Raises:
        CheckpointError: the model has another number of outputs.
        EngineUnavailable: the output is not a finite number.
    """
    if len(values) != 1:
        raise CheckpointError(
            f"{origin}: {len(values)} numbers per text, but a scalar reward model has one; serve a sequence classifier with "
            "num_labels 1, not an embedding model or a classifier of several labels"
        )
    if not isinstance(values[0], int | float) or not math.isfinite(values[0]):
        raise EngineUnavailable(f"{origin}: the score is {values[0]!r}; the model may overflow in its number format")
    return float(values[0])


class RewardTemplate:
    """The chat template and the tokenizer of a scalar reward model.

    Args:
        template: the chat template.
        tokenizer: the tokenizer.
        bos: text of the token at the beginning of a sequence. None: the model has none.
        max_tokens: maximum number of tokens of a text. None: the tokenizer sets none.

    Attributes:
        control_tokens: strings that the model reads as control tokens.
        max_tokens: maximum number of tokens of a text. None: the tokenizer sets none.
    """

    def __init__(
        self, template: ChatTemplate, tokenizer: Tokenizer, *, bos: str | None, max_tokens: int | None = None
    ) -> None:
        self.max_tokens = max_tokens
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._template, self._tokenizer, self._bos = template, tokenizer, bos
        first = tokenizer.encode("", add_special_tokens=True).ids[:1]
        self._bos_id = None if bos is None else tokenizer.token_to_id(bos)
        self._adds_bos = bos is not None and first == [self._bos_id]
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self.control_tokens = ControlTokens.of(special, tags=template.tags).served

    @classmethod
    def load(cls, folder: Path, *, kwargs: TemplateOptions | None = None) -> RewardTemplate:
        """Load the files of a model's folder.

        Args:
            folder: folder with `tokenizer.json` and the chat template.
            kwargs: options of the chat template. None: its own defaults, as the authors of reward models render it.

        Raises:
            CheckpointError: a file is missing or broken.
        """
        file = folder / "tokenizer.json"
        if not file.exists():
            raise CheckpointError(f"{folder}: no tokenizer.json; give the folder of the reward model")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{file}: not a tokenizer: {error}") from error
        template = ChatTemplate.load(folder, kwargs=kwargs or {})
        if template.source is CHATML:
            raise CheckpointError(f"{folder}: no chat template; add the one that the reward model was trained with")
        config = folder / "tokenizer_config.json"
        limit = read_json(config).get("model_max_length") if config.exists() else None
        return cls(
            template,
            tokenizer,
            bos=template.special_tokens.get("bos_token"),
            max_tokens=limit if isinstance(limit, int) and 0 < limit < NO_LIMIT else None,
        )

    def text(self, messages: Conversation) -> str:
        """Return the text for a tokenizer that adds its special tokens. The token at the beginning is written once, by the
        template or by the tokenizer.

        Raises:
            RequestNotShown: the template refuses the conversation.
        """
        try:
            text = self._template.render(messages, add_generation_prompt=False)
        except TemplateFailed as error:
            raise RequestNotShown(f"prompt: the chat template refuses the conversation: {error}") from error
        return text.removeprefix(self._bos) if self._adds_bos and self._bos else text

    def ids(self, messages: Conversation) -> list[int]:
        """Return the ids of a conversation.

        Raises:
            RequestNotShown: the template refuses the conversation.
        """
        return self._tokenizer.encode(self.text(messages), add_special_tokens=True).ids

    def read_text(self, messages: Conversation) -> ReadText:
        """Return a conversation as the model reads it.

        Raises:
            RequestNotShown: the template refuses the conversation.
        """
        return ReadText(token_ids=self.ids(messages), bos_id=self._bos_id if self._adds_bos else None)
