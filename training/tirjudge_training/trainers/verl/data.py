"""What verl is handed: items as the rows that its data set reads, and what each of its workers must know to judge them.

Both are files, because verl's workers may run on other machines. Nothing here imports verl.
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
    """How a worker of verl judges."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: Profile
    """Of the checkpoint that is trained."""
    eos_token_ids: tuple[int, ...]
    """Ids that end a turn of that checkpoint."""
    reward: RewardRule = RewardRule()
    tools: Literal["auto", "off"] = "auto"
    rl: RLSettings = RLSettings()
    verl: VerlSettings = VerlSettings()
    allow_unsafe: bool = False
    """Run programs even where nothing isolates them."""
    seed: int = Field(default=0, ge=0)
    """Of the rollouts, with the step and the item."""

    @property
    def longest_response(self) -> int:
        """Most tokens that can follow a prompt: what the model writes, and what its programs print."""
        calls = self.rl.max_tool_calls if self.tools != "off" else 0
        written = self.profile.rollout_tokens + calls * self.profile.observation_tokens + RESERVED_TOKENS
        return min(self.profile.context_tokens, written)

    def write(self, path: Path) -> None:
        """As verl's `agent_loop_config_path` wants it (JSON is YAML)."""
        target = "tirjudge_training.trainers.verl.agent_loop.TirJudgeAgentLoop"
        entry = {"name": AGENT_NAME, "_target_": target, "settings": self.model_dump(mode="json")}
        path.write_text(json.dumps([entry], indent=1) + "\n", encoding="utf-8")


def verl_rows(items: Iterable[TrainingItem]) -> list[dict[str, Any]]:
    """One row an item, in the columns of verl's `RLHFDataset`.

    `data_source` is task and mode, which is what verl breaks its validation down by. The item itself travels as JSON in
    `extra_info`; `prompt` is there because verl wants one, and is not what the judge is shown.
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
    """Write items as Parquet that verl reads.

    Raises:
        ValueError: there are none, or of one it is not known which response is right.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    items = list(items)
    if not items:
        raise ValueError(f"{path}: no items given, verl needs one at least")
    for item in items:
        if item.best is None:
            raise ValueError(
                f'item "{item.id}": best is null, and verl rewards each rollout by itself; use trainer trl'
            )
    pq.write_table(pa.Table.from_pylist(verl_rows(items)), path, compression="zstd")


def item_of(extra_info: Mapping[str, Any]) -> TrainingItem:
    """The item of a row.

    Raises:
        ValueError: there is none in it.
    """
    try:
        return _ITEM.validate_json(extra_info["item"])
    except (KeyError, ValidationError) as error:
        raise ValueError(f"extra_info: no item in it ({error}); write the data with write_verl_dataset") from None
