"""RL restores the tool use and the accuracy of a judge that was trained to guess."""

from pathlib import Path
from statistics import fmean

import pytest

from tirjudge_training.config import parse_recipe
from tirjudge_training.metrics import read_metrics
from tirjudge_training.stages import run_stages
from tirjudge_training.training_samples import read_trajectories

MIXTURE = {"conduct": 0.0, "numeric": 0.0, "many_instructions": 0.0, "list_size": 3}
RECIPE = {
    "start": {
        "weak": {
            "parent": "bundled",
            "steps": 20,
            "examples_per_step": 16,
            "examples_per_shard": 512,
            "matrix_lr": 0.006,
            "other_lr": 0.001,
            "warmup_steps": 5,
            "whole": 1.0,
            "guesses": 0.6,
            "mixture": MIXTURE,
        }
    },
    "data": {"synthetic": {"pointwise": 40, "pairwise": 160, "listwise": 40, "mixture": MIXTURE}},
    "validation": {"share": 0.25},
    "rl": {
        "device": "cpu",
        "learning_rate": 1.5e-4,
        "lr_scheduler": "constant",
        "group_size": 8,
        "prompts_per_step": 8,
        "per_device_batch": 16,
        "steps": 5,
        "context_tokens": 3072,
        "validate_every": 5,
        "save_every": 5,
    },
}


@pytest.mark.slow
def test_rl_restores_tool_use_and_accuracy(tmp_path: Path) -> None:
    state = run_stages("rl", parse_recipe(RECIPE, source="test"), out=tmp_path / "run")
    start, trained = (state.stage(name).validation for name in ("start", "rl-1"))
    assert start is not None
    assert trained is not None
    assert trained.accuracy > start.accuracy + 0.1
    assert trained.tool_use > start.tool_use + 0.15
    assert trained.failed_programs < 0.1
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    for key, gain in (("reward/Rc", 0.1), ("tool/use_rate", 0.15)):
        values = [row.values[key] for row in rows if key in row.values]
        assert len(values) == RECIPE["rl"]["steps"]
        assert fmean(values[-2:]) > fmean(values[:2]) + gain, key
    for trajectory in read_trajectories(tmp_path / "run" / "rollouts" / "rl-1" / "step-000001.parquet"):
        observed = [p for p, sampled in zip(trajectory.logprobs, trajectory.mask, strict=True) if not sampled]
        assert set(observed) <= {0.0}  # observations were not sampled; test_dapo.py checks that they have no gradient
