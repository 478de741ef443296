"""Errors in a recipe name the key, the given value and the valid values."""

from pathlib import Path

import pytest

from tirjudge_training.config import Recipe, accelerate_file, load_recipe, parse_recipe, recipe_names
from tirjudge_training.trainers.verl.options import requirements


@pytest.mark.parametrize("name", recipe_names())
def test_every_bundled_recipe_is_valid(name: str) -> None:
    recipe = load_recipe(name)
    assert parse_recipe(recipe.resolved(), source=name) == recipe


def test_resolved_recipe_has_every_key() -> None:
    resolved = load_recipe("tiny-cpu-zero").resolved()
    assert set(resolved) == set(Recipe.model_fields)
    assert resolved["rl"]["clip_high"] == 0.3  # a default, which this recipe does not set


def test_large_recipes_have_the_settings_of_the_paper() -> None:
    for name in ("eight-gpu-zero", "multi-node-zero"):
        recipe = load_recipe(name)
        assert (recipe.sft.batch, recipe.sft.learning_rate, recipe.sft.epochs) == (64, 2e-6, 1)
        assert (recipe.rl.group_size, recipe.rl.prompts_per_step, recipe.rl.epochs) == (8, 128, 2)
        assert (recipe.rl.clip_low, recipe.rl.clip_high, recipe.rl.kl, recipe.rl.learning_rate) == (
            0.2,
            0.3,
            0.01,
            1e-6,
        )
        assert (recipe.sampling.rollouts, recipe.sampling.preset, recipe.rl.max_tool_calls) == (4, "paper", 3)
        assert recipe.validation.share == 0.05
    # 128 prompts x 8 rollouts on 4 processes with 4 sequences per pass: 1024 / 16 = 64 passes
    eight = load_recipe("eight-gpu-zero")
    passes = eight.rl.grad_accumulation(sequences=eight.rl.sequences_per_step, num_processes=eight.launch.processes)
    assert passes == 64


def test_verl_supports_the_multi_node_recipe() -> None:
    assert requirements(load_recipe("multi-node-zero").rl)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"rl": {"stepz": 3}}, "r.yaml: rl.stepz: unknown key; did you mean steps?"),
        ({"rl": {"steps": "x"}}, "r.yaml: rl.steps: 'x' given; input should be a valid integer"),
        (
            {"data": {"synthetic": {"pairwize": 1}}},
            "r.yaml: data.synthetic.pairwize: unknown key; did you mean pairwise?",
        ),
        ({"start": {"checkpoint": "a", "weak": {}}}, "r.yaml: start: checkpoint and weak both given"),
        ({"teacher": {}}, "r.yaml: teacher: nothing given; set checkpoint, engine_url, or chat_url"),
        ({"engine": {"kind": "vllm"}}, "r.yaml: engine: kind vllm and url None given"),
        (
            {"sampling": {"preset": "best"}},
            "r.yaml: sampling.preset: 'best' given; input should be 'paper' or 'robust'",
        ),
        (
            {"data": {"items": "a.parquet"}},
            "r.yaml: data.items: 'a.parquet' given; give a list, such as [a.parquet]",
        ),
        ({"rl": 3}, "r.yaml: rl: 3 given; give a mapping of keys to values"),
        ({"trainer": "deepspeed"}, "r.yaml: trainer: 'deepspeed' given; installed are trl, verl"),
        ({"verl": {"node": 2}}, "r.yaml: verl.node: unknown key; did you mean nodes?"),
        ({"zero": {}}, "r.yaml: zero: unknown key; valid keys are seed, trainer"),
    ],
)
def test_error_names_the_key_the_value_and_a_valid_value(tree: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_recipe(tree, source="r.yaml")
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_overrides_replace_keys_of_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("rl: {steps: 5, kl: 0.0}\n")
    recipe = load_recipe(str(file), overrides=["rl.steps=7", "data.tasks=[math]", "start.weak.steps=3", "tools=false"])
    assert (recipe.rl.steps, recipe.rl.kl, recipe.data.tasks, recipe.tools) == (7, 0.0, ("math",), False)
    assert recipe.start.weak is not None
    assert recipe.start.weak.steps == 3


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("nowhere.yaml", [], "recipe: nowhere.yaml is not a file; give a YAML file, or one of eight-gpu-zero"),
        ("tiny-cpu-zero", ["rl.steps"], "--set rl.steps: not of the form KEY=VALUE"),
        (
            "tiny-cpu-zero",
            ["rl.steps=0"],
            "tiny-cpu-zero: rl.steps: 0 given; input should be greater than or equal to 1",
        ),
    ],
)
def test_error_for_an_unreadable_recipe_names_it(recipe: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        load_recipe(recipe, overrides=overrides)
    assert str(raised.value).startswith(message)


def test_error_for_a_file_that_is_not_yaml_names_it(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("rl: [1\n")
    with pytest.raises(ValueError, match="not YAML"):
        load_recipe(str(file))
    file.write_text("- 1\n")
    with pytest.raises(ValueError, match="must be a mapping of keys to values, not list"):
        load_recipe(str(file))
    file.write_bytes(b"\xdc\x00")
    with pytest.raises(ValueError, match=r"r\.yaml: not YAML: not text"):
        load_recipe(str(file))


def test_off_can_be_written_without_quotes(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("gate: {mode: off}\n")
    assert load_recipe(str(file)).gate.mode == "off"
    assert load_recipe(str(file), overrides=["gate.mode=off"]).gate.mode == "off"


def test_fsdp2_config_is_bundled_and_error_names_a_missing_file():
    sharded = load_recipe("tiny-cpu-zero", overrides=["launch.accelerate=fsdp2"])
    assert Path(accelerate_file(sharded.launch.accelerate or "")).is_file()
    with pytest.raises(ValueError, match=r"launch\.accelerate: mine\.yaml is not a file; .* or fsdp2"):
        load_recipe("tiny-cpu-zero", overrides=["launch.accelerate=mine.yaml"])


def test_only_selected_or_configured_trainers_have_sections() -> None:
    assert "verl" not in load_recipe("tiny-cpu-zero").resolved()
    assert load_recipe("multi-node-zero").resolved()["verl"]["nodes"] == 2
    both = load_recipe("tiny-cpu-zero", overrides=["verl.nodes=3"])
    assert (both.trainer, both.settings_of("verl").nodes) == ("trl", 3)
