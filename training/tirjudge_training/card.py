"""The model card, written from measured numbers alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = """\
# {name}

A tool-integrated judge of {parameters:.1f} million parameters, trained from scratch by `tirjudge train bundled`. Given a prompt and
responses it names what can be checked, writes a Python program that reads its parameters from the prompt, sees what the program
prints, and gives a verdict.

**What it can judge.** Verifiable instructions in the manner of IFEval ({num_kinds} kinds: counts of words, sentences, paragraphs,
bullets and the like, keywords present, absent or how often, letter frequency, case, commas, digits, openings, endings, quotation,
JSON, titles, sections, postscripts, placeholders, repeated requests, ...), one to three in a prompt, and simple numeric questions.

**What it cannot judge.** Anything else. It has never seen natural language beyond templates; outside its domain its verdict is a
guess, and its probability says so only in part. It is no safety judge: the few harmful requests in its training teach it when not to
write a program. Put a Qwen3-class model on vLLM behind the same server for real work.

## Architecture
Qwen3, {num_layers} layers of width {hidden_size}, {num_heads} attention heads ({num_kv_heads} of keys and values), vocabulary {vocab_size} (own
byte-level BPE), context {context_tokens} tokens, bfloat16, {size_mb:.1f} MB.

## Training
{num_examples:,} synthetic examples, seed {seed}, one pass of supervised training in which only what the model writes carries loss;
{num_tokens:,} tokens in {minutes:.0f} minutes ({machine}); last loss {last_loss:.4f}. The data are generated from the seed and not
stored. `training.json` holds the whole recipe.
"""

_SYNTHETIC = """
## Held-out synthetic items
New phrasings, words, topics, names and numbers, from a seed of their own ({seed}); {num_items:,} items a set, judged through the loop
that serves, with a real sandbox, greedily, in one order. Accuracy counts a tie as wrong. Intervals are Wilson's, 95 %.

| set | accuracy | 95 % interval | rollouts with a program | programs that failed | verdicts that had to be forced |
|---|---|---|---|---|---|
"""

_CONTROLS = """
The rows "tools off" and "outputs replaced by noise" are controls: the verdict must come from what the programs print, so accuracy
there must be chance (50 % pairwise, 25 % listwise of four). Shown an instruction without tools, the model was taught to guess evenly.
"""

_REAL = """
## Real rows
Judged through the server by `tirjudge judge`, greedily, in one order. These sets are mostly outside the judge's domain: where no
instruction of a kind it knows decides, expect chance. Accuracy is over rows with one best response; a tie counts half.

| file | rows with a label | accuracy | 95 % interval | chance | rollouts with a program | programs that failed | forced verdicts |
|---|---|---|---|---|---|---|---|
"""


def wilson(successes: float, trials: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z = 1.959963984540054
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return centre - half, centre + half


def write_card(checkpoint: Path) -> None:
    """Write README.md into a checkpoint folder from its training.json, scores.json and, if there is one, real_rows.json."""
    training = _read(checkpoint / "training.json")
    scores = _read(checkpoint / "scores.json")
    text = _head(checkpoint, training) + _SYNTHETIC.format(seed=scores["seed"], num_items=scores["sets"][0]["num_items"])
    text += "".join(map(_score_row, scores["sets"])) + _CONTROLS
    if (checkpoint / "real_rows.json").exists():
        text += _REAL + "".join(map(_real_row, _read(checkpoint / "real_rows.json")))
    (checkpoint / "README.md").write_text(text, encoding="utf-8")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _head(checkpoint: Path, training: Mapping[str, Any]) -> str:
    from tirjudge_training.instructions import KINDS

    recipe, trained = training["recipe"], training["trained"]
    profile = _read(checkpoint / "judge.json")
    return _HEAD.format(
        **{key: recipe[key] for key in ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "vocab_size", "seed")},
        **{key: trained[key] for key in ("num_examples", "num_tokens", "machine")},
        name=profile["name"],
        context_tokens=profile["context_tokens"],
        parameters=trained["num_parameters"] / 1e6,
        num_kinds=len(KINDS),
        size_mb=(checkpoint / "model.safetensors").stat().st_size / 1e6,
        minutes=trained["elapsed_s"] / 60,
        last_loss=trained["losses"][-1],
    )


def _score_row(score: Mapping[str, Any]) -> str:
    right, items = score["num_right"], score["num_items"]
    cells = [
        score["name"],
        _percent(right / items),
        _interval(right, items),
        _percent(score["num_rollouts_with_calls"] / score["num_rollouts"]),
        _percent(score["num_failed_calls"] / max(1, score["num_calls"]), digits=2),
        _percent(1 - score["num_own_verdicts"] / score["num_rollouts"], digits=2),
    ]
    return _row(cells)


def _real_row(row: Mapping[str, Any]) -> str:
    cells = [
        row["file"],
        str(row["num_labelled"]),
        _percent(row["num_right"] / row["num_labelled"]),
        _interval(row["num_right"], row["num_labelled"]),
        _percent(row["chance"]),
        _percent(row["tool_use_rate"]),
        _percent(row["code_error_rate"], digits=2),
        _percent(row["no_verdict_rate"], digits=2),
    ]
    return _row(cells)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _percent(share: float, *, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _interval(successes: float, trials: int) -> str:
    low, high = wilson(successes, trials)
    return f"{_percent(low)} to {_percent(high)}"
