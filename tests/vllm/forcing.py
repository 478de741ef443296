"""A logits processor for vLLM that makes a model write given token ids. vLLM imports this file in its own environment.

The file that TIRJUDGE_TEST_SCRIPT names has a list of turns, each a list of ids. A request writes the first turn whose
ids do not occur in its prompt yet. Requests with allowed ids, which read labels, are not changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class ForcedTurns(AdapterLogitsProcessor):
    """Forces the next id of the script."""

    def is_argmax_invariant(self) -> bool:
        """Return False: the most probable id changes."""
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[..., Any] | None:
        """Return the function that changes the logits of a request; None for a request that reads labels."""
        return None if params.allowed_token_ids else _force


def _force(prompt_ids: list[int], output_ids: list[int], logits: Any) -> Any:
    turn = _next_turn(prompt_ids)
    if len(output_ids) < len(turn):
        wanted = turn[len(output_ids)]
        logits[:] = float("-inf")
        logits[wanted] = 0.0
    return logits


def _next_turn(prompt_ids: list[int]) -> list[int]:
    script = json.loads(Path(os.environ["TIRJUDGE_TEST_SCRIPT"]).read_text())
    return next((turn for turn in script if not _occurs(turn, prompt_ids)), [])


def _occurs(part: list[int], whole: list[int]) -> bool:
    return any(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))
