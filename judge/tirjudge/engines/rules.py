"""The engine `rules:FILE`: no model. The checks of the file judge all requests."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tirjudge.checks import open_checks
from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.scripted import ByteTokenizer
from tirjudge.errors import TurnRefused
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.profile import Profile
from tirjudge.tools.base import ToolOptions
from tirjudge.types import Completion, Sampling
from tirjudge.weights_lock import WeightsLock


class RulesEngine(BaseEngine):
    """Engine that writes no text. Its judge decides by checks."""

    facts = EngineFacts(generates=False, constrains=False)
    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.tokenizer = ByteTokenizer()

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """
        Raises:
            TurnRefused: always.
        """
        raise TurnRefused("this judge has rules and no model, so it cannot write text; send a request for a judgment")


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    if not address:
        raise ValueError("rules: without a file; give rules:FILE, a settings file with checks")
    opening = open_checks(
        address, options=ToolOptions(slots=options.slots, allow_unsafe_sandbox=options.allow_unsafe_sandbox)
    )
    async with opening as checks:
        version = hashlib.sha256("\n".join(card.sha256 for card in checks.cards).encode()).hexdigest()[:16]
        yield Model(
            engine=RulesEngine(),
            profile=Profile(name=f"rules-{Path(address).stem}"),
            weights=WeightsLock(version=version),
            checks=checks,
        )


ENGINE = EngineKind(name="rules", address="FILE", open=_open)
