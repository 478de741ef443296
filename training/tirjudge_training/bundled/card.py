"""The model card: the template `card.md`, filled in with recorded and measured numbers only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tirjudge.statistics import wilson_interval
from tirjudge_training.bundled.checked import known_checks
from tirjudge_training.bundled.markdown import percent, table_row
from tirjudge_training.bundled.measuring.card_section import measured_section
from tirjudge_training.synthetic.instructions import KINDS

_SELECTIVE = """
Coverage is the share of the items with a verdict. The last three columns have the share of all items and, in brackets, the
accuracy.

| set | coverage | accuracy of the verdicts | checked | reasoned | guessed |
|---|---|---|---|---|---|
"""


_TOOLS = """
With the tools `run` and `evidence`: answers with Python code, by the examples that the prompt shows, and answers to questions
that a value in a table, a graph or a document decides."""


def _tools(recipe: Mapping[str, Any]) -> str:
    """Return what a judge can check with tools. Recipes from before look-ups do not have their share."""
    return _TOOLS if "lookups" in (recipe.get("checked") or {}) else ""


def write_card(checkpoint: Path) -> None:
    """Write README.md into a checkpoint folder, from its judge.json, tokenizer.json, training.json and scores.json.

    Figures on real rows come first. They are in measured.json, which `tirjudge train measure` writes. Without it, the card
    has none.

    Raises:
        FileNotFoundError: one of these files is missing.
    """
    training, scores = _read(checkpoint / "training.json"), _read(checkpoint / "scores.json")
    stages = training["stages"]
    recipe, trained, profile = stages[-1]["recipe"], stages[-1]["trained"], _read(checkpoint / "judge.json")
    measured = checkpoint / "measured.json"
    architecture = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "vocab_size")
    parameters = trained["num_parameters"] / 1e6
    tokens = {token["content"] for token in _read(checkpoint / "tokenizer.json")["added_tokens"]}
    num_checks = len(known_checks(tokens))
    about = _template("card_first.md" if recipe.get("checked") is None else "card_second.md")
    text = _template("card.md").format(
        **{key: recipe[key] for key in architecture},
        about=about.format(parameters=parameters, num_kinds=len(KINDS), num_checks=num_checks, tools=_tools(recipe)),
        stages="".join(map(_stage, stages)) + _averaged(training.get("averaged")),
        name=profile["name"],
        context_tokens=profile["context_tokens"],
        size_mb=(checkpoint / "model.safetensors").stat().st_size / 1e6,
        evaluation_seed=scores["seed"],
        num_items=scores["sets"][0]["num_items"],
        synthetic_rows="".join(map(_score_row, scores["sets"])),
        selective=_selective(scores["sets"]),
        measured=measured_section(_read(measured)) if measured.exists() else "",
    )
    (checkpoint / "README.md").write_text(text, encoding="utf-8")


def _template(name: str) -> str:
    return resources.files("tirjudge_training.bundled").joinpath(name).read_text(encoding="utf-8")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _stage(stage: Mapping[str, Any]) -> str:
    recipe, trained = stage["recipe"], stage["trained"]
    origin = "from scratch" if recipe["parent"] is None else f"from the weights {recipe['parent'][:12]}"
    return (
        f"- {origin}: {trained['num_examples']:,} examples of seed {recipe['seed']}, {trained['num_tokens']:,} tokens in"
        f" {trained['elapsed_s'] / 60:.0f} min ({trained['machine']}); last loss {trained['losses'][-1]:.4f}\n"
    )


def _averaged(weights: Sequence[str] | None) -> str:
    """Return the line of a checkpoint whose weights are the mean of others, given by their hashes."""
    if weights is None:
        return ""
    counted = (f"{sha[:12]}" + f" (counted {num} times)" * (num > 1) for sha, num in Counter(weights).items())
    return f"- mean of the weights {' and '.join(counted)}\n"


def _score_row(score: Mapping[str, Any]) -> str:
    right, items, rollouts = score["num_right"], score["num_items"], score["num_rollouts"]
    return table_row(
        score["name"],
        *_accuracy(right, items),
        percent(score["num_rollouts_with_calls"] / rollouts),
        percent(score["num_failed_calls"] / max(1, score["num_calls"]), digits=2),
        percent(1 - score["num_own_verdicts"] / rollouts, digits=2),
    )


def _selective(scores: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of coverage and selective accuracy; empty for scores from before these figures."""
    known = [score for score in scores if score.get("selective") is not None]
    return _SELECTIVE + "".join(map(_selective_row, known)) if known else ""


def _selective_row(score: Mapping[str, Any]) -> str:
    found = score["selective"]
    groups = [found["by_basis"][name] for name in ("checked", "reasoned", "guessed")]
    cells = (
        f"{percent(group['share'])} ({percent(group['accuracy'])})" if group["num"] else "none" for group in groups
    )
    accuracy = percent(found["accuracy"])
    return table_row(score["name"], percent(found["coverage"]), accuracy, *cells)


def _accuracy(right: float, items: int) -> Sequence[str]:
    if items == 0:
        return "-", "-"
    low, high = wilson_interval(right, num_trials=items)
    return percent(right / items), f"{percent(low)} to {percent(high)}"
