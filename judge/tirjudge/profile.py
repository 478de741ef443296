"""How one served model is judged with: the sizes and samplings that belong to a checkpoint, read from its `judge.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.errors import CheckpointError
from tirjudge.render import prompts_sha256

LOOP_VERSION = 1
"""Raised when the loop or the observation text changes in a way that a trained judge would notice."""


class Profile(BaseModel):
    """Defaults fit an instruction-tuned model of 4B parameters or more on vLLM; a checkpoint's own file overrides them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "judge"
    """The model's name in answers and in `/v1/models`."""
    context_tokens: int = Field(default=16384, gt=0)
    """Longest sequence the model takes."""
    rollout_tokens: int = Field(default=8192, gt=0)
    """Most tokens that the model may generate in one rollout, all turns together."""
    observation_tokens: int = Field(default=1024, gt=0)
    """Longest program output shown."""
    prompt_chars: int = Field(default=24_000, gt=0)
    """Longest prompt shown whole; of a longer one, head and tail."""
    response_chars: int = Field(default=16_000, gt=0)
    """Longest response shown whole; of a longer one, head and tail. Programs always have it whole."""
    all_responses_chars: int = Field(default=32_000, gt=0)
    """Most characters shown of all responses together; each gets an equal share."""
    group_size: int = Field(default=26, ge=2)
    """Most responses in one listwise prompt."""
    vote_temperature: float = Field(default=1.0, ge=0.0)
    """Temperature when several votes are asked for and the request names none."""
    loop_version: int | None = None
    """The loop that the checkpoint was trained for; None: it was not trained for ours."""
    prompts_sha256: str | None = None
    """The prompts that the checkpoint was trained on; None: it was not trained on ours."""


def load_profile(checkpoint: Path) -> Profile:
    """The profile of a checkpoint folder; the defaults if it has no `judge.json`.

    Raises:
        CheckpointError: the file is malformed, or the checkpoint was trained for other prompts or another loop.
    """
    path = checkpoint / "judge.json"
    if not path.exists():
        return Profile(name=checkpoint.name)
    try:
        profile = Profile.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if profile.loop_version not in (None, LOOP_VERSION):
        raise CheckpointError(f"{path}: trained for loop version {profile.loop_version}, this is {LOOP_VERSION}")
    if profile.prompts_sha256 not in (None, prompts_sha256()):
        raise CheckpointError(
            f"{path}: trained on other prompts than these; retrain it or use the release it came with"
        )
    return profile
