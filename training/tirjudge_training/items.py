"""Training items: a prompt, responses and the label. Also their files, and the split into training and held-out items.

A row of a file is one item, and a draw in training takes one item. Pairwise and listwise items show all responses in
one stored order. A pointwise item is a pair whose two responses are scored separately.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tirjudge.durable import replacing_file
from tirjudge.types import AttachedStore, ChatMessage, JudgeRequest, Mode, prompt_text
from tirjudge_training.row_files import SUFFIXES, read_rows, write_lines

HELD_OUT_SHARE = 0.05
"""Default share of each task and mode that is held out (TIR-Judge, 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingItem:
    """One training item: a prompt, responses, and the label."""

    id: str
    """Identifier, unique within a file."""
    mode: Mode
    prompt: str | tuple[ChatMessage, ...]
    """The prompt that the responses answer: text, or a conversation."""
    responses: tuple[str, ...]
    """Pairwise and pointwise: exactly 2 responses (pointwise: judged separately). Listwise: 2 or more."""
    best: int | None
    """Index of the best response, the label. None: unknown."""
    task: str
    """Task, such as `math` or `safety`. Validation, mixtures and plots group by it."""
    source: str
    """Data set of the item."""
    verifiable: bool
    """Whether a program can decide the item. False (safety, helpfulness): the format reward requires no program."""
    order: tuple[int, ...]
    """Indices of the responses in the order shown (pairwise, listwise)."""
    licence: str = ""
    """License of the data set. Empty: unknown."""
    generator: str = ""
    """Model that wrote the responses. Empty: no model, or unknown."""
    evidence: tuple[AttachedStore, ...] = ()
    """Stores of evidence that come with each request. Empty: none."""
    functions: tuple[str, ...] | None = None
    """Names of the functions that programs may call. None: all."""

    def request(
        self,
        *,
        seed: int,
        temperature: float,
        tools: Literal["auto", "on", "off"] = "auto",
        max_tool_calls: int = 3,
    ) -> JudgeRequest:
        """Return the request for the judge. Verdicts are not forced, so that missing verdicts are visible to the
        reward."""
        return JudgeRequest(
            mode=self.mode,
            prompt=self.prompt if isinstance(self.prompt, str) else list(self.prompt),
            responses=list(self.responses),
            tools=tools,
            max_tool_calls=max_tool_calls,
            force_verdict=False,
            temperature=float(temperature),
            seed=seed,
            evidence=list(self.evidence) or None,
            functions=None if self.functions is None else list(self.functions),
        )

    def shown(self) -> tuple[tuple[int, ...], ...]:
        """Return the prompts of the item: for each prompt, the indices of the responses in the order shown."""
        if self.mode is Mode.POINTWISE:
            return tuple((index,) for index in range(len(self.responses)))
        return (self.order,)

    @property
    def num_groups(self) -> int:
        """Number of groups of rollouts per draw of the item."""
        return len(self.responses) if self.mode is Mode.POINTWISE else 1


def validation_split(
    items: Sequence[TrainingItem], *, share: float = HELD_OUT_SHARE, seed: int = 0
) -> tuple[list[TrainingItem], list[TrainingItem]]:
    """Split items into training and held-out items: about `share` of each task and mode is held out.

    Prompts are held out in the order of a hash until every task and mode has its share. Each task and mode with at
    least two prompts gets at least one held-out item. All items of a prompt are on the same side, so slightly more than
    the share may be held out.

    Args:
        items: All items.
        share: Share of each task and mode to hold out.
        seed: Seed of the hash.

    Returns:
        Training items and held-out items, each in the given order.

    Raises:
        ValueError: `share` is not at least 0 and below 1.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share: expected at least 0 and below 1, got {share}")
    missing = _held_out_counts(items, share=share)
    by_prompt: dict[str, list[TrainingItem]] = {}
    for item in items:
        by_prompt.setdefault(prompt_text(item.prompt), []).append(item)
    held_out: set[str] = set()
    for prompt in sorted(by_prompt, key=lambda prompt: hashlib.sha256(f"{seed}\0{prompt}".encode()).digest()):
        cells = Counter((item.task, item.mode) for item in by_prompt[prompt])
        if any(missing[cell] > 0 for cell in cells):
            missing.subtract(cells)
            held_out.add(prompt)
    sides = [prompt_text(item.prompt) in held_out for item in items]
    return (
        [item for item, is_held_out in zip(items, sides, strict=True) if not is_held_out],
        [item for item, is_held_out in zip(items, sides, strict=True) if is_held_out],
    )


def _held_out_counts(items: Sequence[TrainingItem], *, share: float) -> Counter[tuple[str, Mode]]:
    """Return the number of items to hold out of each task and mode."""
    sizes = Counter((item.task, item.mode) for item in items)
    prompts = {cell: {prompt_text(i.prompt) for i in items if (i.task, i.mode) == cell} for cell in sizes}
    least = {cell: int(share > 0 and len(prompts[cell]) > 1) for cell in sizes}
    return Counter({cell: max(least[cell], round(share * size)) for cell, size in sizes.items()})


# Files ------------------------------------------------------------------------------------------------------------------


_ITEM = TypeAdapter(TrainingItem)
COLUMNS = tuple(field.name for field in fields(TrainingItem))


def read_items(path: Path | str) -> list[TrainingItem]:
    """Read all items of a `.parquet`, `.jsonl` or `.jsonl.gz` file.

    A Parquet column has one type. So a conversation is stored in the column `messages`, and `prompt` is null.

    Raises:
        ValueError: a column is missing or invalid. The message has the file, the row (starting at 1) and the column.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give a file, such as {path / 'train.parquet'}")
    _check_suffix(path)
    if not path.exists():
        build = f"`tirjudge train data build --out {path.parent}`"
        raise ValueError(
            f"{path}: no such file; {build} makes train.parquet and validation.parquet from public data sets"
        )
    items: dict[str, TrainingItem] = {}
    for number, row in enumerate(read_rows(path)[1], start=1):
        try:
            item = _item(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
        if item.id in items:
            first = list(items).index(item.id) + 1
            raise ValueError(f'{path}, row {number}: id: "{item.id}" is also in row {first}; ids must be unique')
        items[item.id] = item
    return list(items.values())


def write_items(items: Iterable[TrainingItem], path: Path | str) -> None:
    """Write items to a `.parquet`, `.jsonl` or `.jsonl.gz` file. The file is written atomically.

    Raises:
        ValueError: the suffix is not supported, or an id occurs twice.
    """
    path, items = Path(path), list(items)
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ValueError(f'id: "{twice[0]}" occurs more than once; ids must be unique')
    _check_suffix(path)
    with replacing_file(path) as unfinished:
        if path.suffix == ".parquet":
            _write_parquet(items, unfinished)
        else:
            write_lines(map(_row, items), unfinished, gzipped=path.suffix == ".gz")


def _check_suffix(path: Path) -> None:
    if not path.name.endswith(SUFFIXES):
        raise ValueError(f"{path}: unsupported suffix; give a .parquet, .jsonl or .jsonl.gz file")


def _item(row: Mapping[str, Any]) -> TrainingItem:
    """Return the item of a row. Unknown columns are ignored.

    Raises:
        ValueError: a column is missing or invalid. The message has the column.
    """
    known = {name: row[name] for name in COLUMNS if name in row}
    if row.get("messages") is not None:
        known["prompt"] = row["messages"]
    if isinstance(known.get("evidence"), str):  # Parquet has it as JSON
        known["evidence"] = json.loads(known["evidence"])
    elif known.get("evidence", ()) is None:
        del known["evidence"]
    try:
        # Strict validation of JSON accepts lists for tuples and rejects other conversions.
        item = _ITEM.validate_json(json.dumps(known, default=lambda value: None), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        column = str(first["loc"][0]) if first["loc"] else "row"
        missing = first["type"] == "missing"
        raise ValueError(f'the column "{column}" is missing' if missing else f"{column}: {first['msg']}") from None
    num = len(item.responses)
    if num < 2 or (item.mode is not Mode.LISTWISE and num != 2):
        wanted = "2 or more" if item.mode is Mode.LISTWISE else "exactly 2"
        raise ValueError(f"responses: {item.mode} needs {wanted}, got {num}")
    if item.best is not None and not 0 <= item.best < num:
        raise ValueError(f"best: {item.best} given with {num} responses, must be 0 to {num - 1}, or null")
    if sorted(item.order) != list(range(num)):
        raise ValueError(f"order: expected each of 0 to {num - 1} once, got {list(item.order)}")
    return item


def _row(item: TrainingItem) -> dict[str, Any]:
    """Return the columns of an item. Those of evidence are left out where an item has none."""
    row = _ITEM.dump_python(item, mode="json")
    empty = {"evidence": not item.evidence, "functions": item.functions is None}
    return {name: value for name, value in row.items() if not empty.get(name)}


def _write_parquet(items: Sequence[TrainingItem], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(item) for item in items]
    rows = [
        row if isinstance(row["prompt"], str) else {**row, "prompt": None, "messages": row["prompt"]} for row in rows
    ]
    numbers, texts = pa.list_(pa.int32()), pa.list_(pa.string())
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {
        "best": pa.int32(),
        "order": numbers,
        "responses": texts,
        "verifiable": pa.bool_(),
        "messages": pa.list_(message),
    }
    if any("evidence" in row or "functions" in row for row in rows):
        columns |= {"functions": texts, "evidence": pa.string()}
        rows = [row | {"evidence": json.dumps(row["evidence"])} if "evidence" in row else row for row in rows]
    names = [name for name in (*COLUMNS, "messages") if name not in ("evidence", "functions") or name in columns]
    schema = pa.schema([(name, columns.get(name, pa.string())) for name in names])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
