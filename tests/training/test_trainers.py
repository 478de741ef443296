"""Trainers are found by entry points. Recipes are read and checked without heavy imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tirjudge_training.config import load_recipe, parse_recipe
from tirjudge_training.trainers import TRAINERS, trainer_of
from tirjudge_training.trainers.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_trainer_has_the_name_of_its_entry_point(name: str) -> None:
    assert TRAINERS[name].name == name
    assert TRAINERS[name].kinds <= {"sft", "rl"}


def test_built_in_trainers_are_found_by_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["entry-points"][TRAINERS.group]) <= set(TRAINERS)


def test_trl_runs_stages_that_the_named_trainer_does_not_support() -> None:
    recipe = load_recipe("multi-node-zero")
    assert (trainer_of(recipe, "rl").name, trainer_of(recipe, "sft").name) == ("verl", "trl")


@pytest.mark.slow
def test_reading_a_recipe_imports_no_heavy_packages() -> None:
    code = """
import sys
from tirjudge_training.config import load_recipe
load_recipe("tiny-cpu-zero"), load_recipe("multi-node-zero")
print([m for m in ("torch", "transformers", "trl", "accelerate", "verl", "ray", "datasets") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_verl_rejects_pseudo_labels() -> None:
    recipe = parse_recipe({"trainer": "verl"}, source="test")
    with pytest.raises(ValueError, match="only trainer trl supports pseudo-labels; set trainer to trl"):
        TRAINERS["verl"].check(recipe, kind="rl", without_labels=True)


@pytest.mark.parametrize(
    ("needed", "found", "accepted"),
    [
        (1.0, 1, True),
        (1, 1.0 + 1e-12, True),
        (0.2, 0.3, False),
        (True, True, True),
        (True, 1, False),
        (0, False, False),
        (None, None, True),
        (None, 0, False),
        ("grpo", "gae", False),
    ],
)
def test_requirement_compares_values_and_types(needed: object, found: object, accepted: bool) -> None:
    assert Requirement("x", needed, "so").accepts(found) is accepted
    assert Requirement("x", 1e9, "so", at_least=True).accepts(1e10)
