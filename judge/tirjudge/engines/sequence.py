"""The engine `sequence:FOLDER`: a scalar reward model in this process, a sequence classifier of transformers.

It needs torch and transformers, which come with the extra `tirjudge[train]`. They are imported when the engine is opened.
The weights keep the number format of the checkpoint.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.base import RawScore
from tirjudge.engines.scalar import Conversation, ReadText, RewardTemplate, ScalarEngine, one_number
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong
from tirjudge.model import EngineKind, EngineOptions, Model, checkpoint_folder, fingerprint, identity_of
from tirjudge.profile import Profile
from tirjudge.weights_lock import WeightsLock

MAX_BATCH = 8
"""Maximum number of texts of one batch."""

MAX_BATCH_TOKENS = 16_384
"""Maximum number of tokens of one batch, with padding. A longer text is a batch of its own."""


class SequenceEngine(ScalarEngine):
    """A sequence classifier of transformers. Texts that wait at the same time are scored in batches.

    Args:
        model: the classifier, with one label.
        template: chat template and tokenizer of the model.
        max_tokens: maximum number of tokens of a text.
        origin: folder of the model, for messages.
    """

    def __init__(self, model: Any, *, template: RewardTemplate, max_tokens: int, origin: str) -> None:
        super().__init__(max_concurrency=4 * MAX_BATCH)
        self._model, self._template, self._max_tokens, self._origin = model, template, max_tokens, origin
        self._padding: int | None = getattr(model.config, "pad_token_id", None)
        self._waiting: deque[tuple[list[int], asyncio.Future[float]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        return self._template.control_tokens

    async def read_text(self, messages: Conversation) -> ReadText:
        return self._template.read_text(messages)

    async def score_conversation(self, messages: Conversation) -> RawScore:
        ids = self._template.ids(messages)
        if len(ids) > self._max_tokens:
            raise PromptTooLong(f"{self._origin}: the text has {len(ids)} tokens; the model accepts {self._max_tokens}")
        score = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, score))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return RawScore(value=one_number([await score], origin=self._origin), num_tokens=len(ids))

    async def aclose(self) -> None:
        """Wait for the batch that is being scored."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                values = await asyncio.to_thread(self._outputs, [ids for ids, _ in batch])
            except Exception as error:  # torch raises many kinds, such as one for a full memory
                failure = EngineUnavailable(f"{self._origin}: {type(error).__name__}: {error}")
                for _, score in batch:
                    if not score.done():
                        score.set_exception(failure)
                continue
            for (_, score), value in zip(batch, values, strict=True):
                if not score.done():
                    score.set_result(value)

    def _take(self) -> list[tuple[list[int], asyncio.Future[float]]]:
        """Take the texts of the next batch. Without a padding token, it is one text."""
        most = 1 if self._padding is None else MAX_BATCH
        batch, longest = [self._waiting.popleft()], 0
        while self._waiting and len(batch) < most:
            longest = max(longest, len(batch[-1][0]), len(self._waiting[0][0]))
            if longest * (len(batch) + 1) > MAX_BATCH_TOKENS:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _outputs(self, texts: Sequence[list[int]]) -> list[float]:
        """Return the output for each text, given as ids."""
        import torch

        longest = max(map(len, texts))
        padding = self._padding or 0
        ids = torch.tensor([[*one, *[padding] * (longest - len(one))] for one in texts], device=self._model.device)
        mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in texts], device=self._model.device)
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask).logits
        return logits[:, 0].float().tolist()


def load_classifier(folder: Path) -> Any:
    """Load a sequence classifier with one label, on a GPU if there is one.

    Raises:
        EngineUnavailable: torch or transformers are not installed.
        CheckpointError: the folder has no such model.
    """
    try:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification
    except ImportError as error:
        raise EngineUnavailable(f"sequence: {error}; install torch and transformers: tirjudge[train]") from error
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if config.num_labels != 1:
            raise CheckpointError(
                f"{folder}: a classifier of {config.num_labels} labels; a scalar reward model has one"
            )
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, dtype="auto", local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{folder}: not a sequence classifier: {error}") from error
    if missing := sorted(loading["missing_keys"]):
        raise CheckpointError(f"{folder}: the weights lack {missing[0]}; not a sequence classifier")
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    if not address:
        raise ValueError("sequence: without a folder; give sequence:FOLDER, the folder of a reward model")
    folder = checkpoint_folder(Path(address))
    template = RewardTemplate.load(folder, kwargs=options.chat_template_kwargs)
    model = await asyncio.to_thread(load_classifier, folder)
    limits = (getattr(model.config, "max_position_embeddings", None), template.max_tokens)
    max_tokens = min((limit for limit in limits if limit), default=Profile().context_tokens)
    engine = SequenceEngine(model, template=template, max_tokens=max_tokens, origin=str(folder))
    kwargs = None if options.chat_template_kwargs is None else dict(options.chat_template_kwargs)
    try:
        yield Model(
            engine=engine,
            profile=Profile(name=folder.name, context_tokens=max_tokens, chat_template_kwargs=kwargs),
            weights=WeightsLock(version=fingerprint(folder)),
            **identity_of(folder),
        )
    finally:
        await engine.aclose()


ENGINE = EngineKind(name="sequence", address="FOLDER", open=_open)
