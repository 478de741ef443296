"""The model card: the template `card.md`, filled in with recorded and measured numbers only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tirjudge.statistics import wilson_interval
from tirjudge_training.synthetic.instructions import KINDS

_SELECTIVE = """
Coverage is the share of the items with a verdict. The last three columns have the share of all items and, in brackets, the
accuracy.

| set | coverage | accuracy of the verdicts | checked | reasoned | guessed |
|---|---|---|---|---|---|
"""


def write_card(checkpoint: Path) -> None:
    """Write README.md into a checkpoint folder, from its judge.json, training.json, scores.json and real_rows.json.

    Without real_rows.json, the table of real rows stays empty.

    Raises:
        FileNotFoundError: judge.json, training.json or scores.json is missing.
    """
    stages, scores = _read(checkpoint / "training.json")["stages"], _read(checkpoint / "scores.json")
    recipe, trained, profile = stages[-1]["recipe"], stages[-1]["trained"], _read(checkpoint / "judge.json")
    real_rows = checkpoint / "real_rows.json"
    architecture = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "vocab_size")
    card = resources.files("tirjudge_training.bundled").joinpath("card.md").read_text(encoding="utf-8")
    text = card.format(
        **{key: recipe[key] for key in architecture},
        stages="".join(map(_stage, stages)),
        name=profile["name"],
        context_tokens=profile["context_tokens"],
        parameters=trained["num_parameters"] / 1e6,
        num_kinds=len(KINDS),
        size_mb=(checkpoint / "model.safetensors").stat().st_size / 1e6,
        evaluation_seed=scores["seed"],
        num_items=scores["sets"][0]["num_items"],
        synthetic_rows="".join(map(_score_row, scores["sets"])),
        selective=_selective(scores["sets"]),
        real_rows="".join(map(_real_row, _read(real_rows))) if real_rows.exists() else "",
    )
    (checkpoint / "README.md").write_text(text, encoding="utf-8")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _stage(stage: Mapping[str, Any]) -> str:
    recipe, trained = stage["recipe"], stage["trained"]
    origin = "from scratch" if recipe["parent"] is None else f"from the weights {recipe['parent'][:12]}"
    return (
        f"- {origin}: {trained['num_examples']:,} examples of seed {recipe['seed']}, {trained['num_tokens']:,} tokens in"
        f" {trained['elapsed_s'] / 60:.0f} minutes ({trained['machine']}); last loss {trained['losses'][-1]:.4f}\n"
    )


def _score_row(score: Mapping[str, Any]) -> str:
    right, items, rollouts = score["num_right"], score["num_items"], score["num_rollouts"]
    return _row(
        score["name"],
        *_accuracy(right, items),
        _percent(score["num_rollouts_with_calls"] / rollouts),
        _percent(score["num_failed_calls"] / max(1, score["num_calls"]), digits=2),
        _percent(1 - score["num_own_verdicts"] / rollouts, digits=2),
    )


def _selective(scores: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of coverage and selective accuracy; empty for scores from before these figures."""
    known = [score for score in scores if score.get("selective") is not None]
    return _SELECTIVE + "".join(map(_selective_row, known)) if known else ""


def _selective_row(score: Mapping[str, Any]) -> str:
    found = score["selective"]
    groups = [found["by_basis"][name] for name in ("checked", "reasoned", "guessed")]
    cells = (
        f"{_percent(group['share'])} ({_percent(group['accuracy'])})" if group["num"] else "none" for group in groups
    )
    accuracy = "-" if found["accuracy"] is None else _percent(found["accuracy"])
    return _row(score["name"], _percent(found["coverage"]), accuracy, *cells)


def _real_row(row: Mapping[str, Any]) -> str:
    return _row(
        row["file"],
        row["holds"],
        str(row["num_scored"]),
        *_accuracy(row["num_right"], row["num_scored"]),
        "-" if row["chance"] is None else _percent(row["chance"]),
        _percent(row["tool_use_rate"]),
        _percent(row["code_error_rate"], digits=2),
        _percent(row["no_verdict_rate"], digits=2),
    )


def _accuracy(right: float, items: int) -> Sequence[str]:
    if items == 0:
        return "-", "-"
    low, high = wilson_interval(right, num_trials=items)
    return _percent(right / items), f"{_percent(low)} to {_percent(high)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _percent(share: float, *, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"
