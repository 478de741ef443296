"""Input files for verl: items as rows of its data set, and the settings of the agent loop for its workers.

They are files, because verl's workers may run on other machines. This module does not import verl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tirjudge.loop import RESERVED_TOKENS
from tirjudge.profile import Profile
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RewardRule
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers.verl.options import AGENT_NAME, VerlSettings

_ITEM = TypeAdapter(TrainingItem)


class LoopSettings(BaseModel):
    """Settings of the agent loop in a worker of verl."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Profile
    """Profile of the checkpoint that is trained."""
    eos_token_ids: tuple[int, ...]
    """Token ids that end a turn."""
    reward: RewardRule = RewardRule()
    tools: Literal["auto", "off"] = "auto"
    functions: tuple[str, ...] = ()
    """Functions that programs may call, as in the recipe."""
    rl: RLSettings = RLSettings()
    verl: VerlSettings = VerlSettings()
    allow_unsafe: bool = False
    """Run programs even if no isolation is available."""
    seed: int = Field(default=0, ge=0)
    """Seed of the rollouts, combined with the step and the item."""

    @property
    def longest_response(self) -> int:
        """Maximum number of tokens after a prompt, including outputs of programs."""
        calls = self.rl.max_tool_calls if self.tools != "off" else 0
        written = self.profile.rollout_tokens + calls * self.profile.observation_tokens + RESERVED_TOKENS
        return min(self.profile.context_tokens, written)

    def write(self, path: Path) -> None:
        """Write the file for verl's `agent_loop_config_path` (JSON, which is valid YAML)."""
        target = "tirjudge_training.trainers.verl.agent_loop.TirJudgeAgentLoop"
        entry = {"name": AGENT_NAME, "_target_": target, "settings": self.model_dump(mode="json")}
        path.write_text(json.dumps([entry], indent=1) + "\n", encoding="utf-8")


def verl_rows(items: Iterable[TrainingItem]) -> list[dict[str, Any]]:
    """Return one row per item, with the columns of verl's `RLHFDataset`.

    `data_source` is task and mode, by which verl groups its validation. `extra_info` contains the item as JSON.
    `prompt` is required by verl, but the judge renders its prompt from the item.
    """
    return [_row(item, index=index) for index, item in enumerate(items)]


def _row(item: TrainingItem, *, index: int) -> dict[str, Any]:
    if isinstance(item.prompt, str):
        messages = [{"role": "user", "content": item.prompt}]
    else:
        messages = [message.model_dump() for message in item.prompt]
    return {
        "data_source": f"{item.task}/{item.mode}",
        "agent_name": AGENT_NAME,
        "prompt": messages,
        "reward_model": {"style": "rule", "ground_truth": str(item.best)},
        "extra_info": {"index": index, "item": _ITEM.dump_json(item).decode()},
    }


def write_verl_dataset(items: Iterable[TrainingItem], path: Path) -> None:
    """Write items to a Parquet file for verl.

    Raises:
        ValueError: no items given, or an item has no label.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    items = list(items)
    if not items:
        raise ValueError(f"{path}: no items given, but verl needs at least one")
    for item in items:
        if item.best is None:
            raise ValueError(f'item "{item.id}": has no label (best is null), but verl needs one; set trainer to trl')
    pq.write_table(pa.Table.from_pylist(verl_rows(items)), path, compression="zstd")


def item_of(extra_info: Mapping[str, Any]) -> TrainingItem:
    """Return the item of a row.

    Raises:
        ValueError: the row contains no item.
    """
    try:
        return _ITEM.validate_json(extra_info["item"])
    except (KeyError, ValidationError) as error:
        raise ValueError(f"extra_info: contains no item ({error}); write the data with write_verl_dataset") from None
