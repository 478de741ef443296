"""What is judged in training, and what is right: items, their files, and which of them are held out.

An item is the unit that a file holds and that is drawn. Pairwise and listwise items show all responses in one stored
order; a pointwise item is a pair whose two responses are each scored alone.
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
from tirjudge.types import ChatMessage, JudgeRequest, Mode, prompt_text
from tirjudge_training.row_files import SUFFIXES, read_rows, write_lines

HELD_OUT_SHARE = 0.05
"""Of each task and mode (TIR-Judge, 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingItem:
    """One training item: what is judged, and what is right."""

    id: str
    """Unique in its file."""
    mode: Mode
    prompt: str | tuple[ChatMessage, ...]
    """What the responses answer: text, or a conversation."""
    responses: tuple[str, ...]
    """Pairwise and pointwise: exactly 2 (pointwise: each is judged alone); listwise: 2 or more."""
    best: int | None
    """Index of the right one; None: not known."""
    task: str
    """What validation, mixtures and plots break down by, such as `math` or `safety`."""
    source: str
    """Data set that it comes from."""
    verifiable: bool
    """Whether a program can settle it. False (safety, helpfulness): the format reward wants no program."""
    order: tuple[int, ...]
    """The order in which the responses are shown (pairwise, listwise)."""
    licence: str = ""
    """Of the data set; empty: not known."""
    generator: str = ""
    """Model that wrote the responses; empty: none did, or it is not known."""

    def request(
        self,
        *,
        seed: int,
        temperature: float,
        tools: Literal["auto", "on", "off"] = "auto",
        max_tool_calls: int = 3,
    ) -> JudgeRequest:
        """The item as the judge takes it. No verdict is forced: a rollout that gives none has to be seen as such."""
        return JudgeRequest(
            mode=self.mode,
            prompt=self.prompt if isinstance(self.prompt, str) else list(self.prompt),
            responses=list(self.responses),
            tools=tools,
            max_tool_calls=max_tool_calls,
            force_verdict=False,
            temperature=float(temperature),
            seed=seed,
        )

    def shown(self) -> tuple[tuple[int, ...], ...]:
        """What is shown together, one tuple of indexes into the responses for each prompt that the item makes."""
        if self.mode is Mode.POINTWISE:
            return tuple((index,) for index in range(len(self.responses)))
        return (self.order,)

    @property
    def num_groups(self) -> int:
        """How many groups of rollouts one draw of it makes."""
        return len(self.responses) if self.mode is Mode.POINTWISE else 1


def validation_split(
    items: Sequence[TrainingItem], *, share: float = HELD_OUT_SHARE, seed: int = 0
) -> tuple[list[TrainingItem], list[TrainingItem]]:
    """Training and held-out items, each in their given order: `share` of each task and mode is held out.

    Prompts are taken in the order of a hash until every task and mode has its share, and at least one item where it has
    two prompts or more. All items of a prompt fall on one side, so a cell may get a little more than its share.

    Raises:
        ValueError: `share` is not from 0 to below 1.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share: {share} given, it is at least 0 and below 1")
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
    """How many items of each task and mode to hold out."""
    sizes = Counter((item.task, item.mode) for item in items)
    prompts = {cell: {prompt_text(i.prompt) for i in items if (i.task, i.mode) == cell} for cell in sizes}
    least = {cell: int(share > 0 and len(prompts[cell]) > 1) for cell in sizes}
    return Counter({cell: max(least[cell], round(share * size)) for cell, size in sizes.items()})


# Files ------------------------------------------------------------------------------------------------------------------


_ITEM = TypeAdapter(TrainingItem)
COLUMNS = tuple(field.name for field in fields(TrainingItem))


def read_items(path: Path | str) -> list[TrainingItem]:
    """All items of a `.parquet`, `.jsonl` or `.jsonl.gz` file.

    Parquet has no column of two types: a conversation stands in the column `messages`, and `prompt` is null then.

    Raises:
        ValueError: naming the file, the row (the first is 1) and the column that is missing, of another type or wrong.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: a folder given; a file in it would do, such as {path / 'train.parquet'}")
    _check_suffix(path)
    items: dict[str, TrainingItem] = {}
    for number, row in enumerate(read_rows(path)[1], start=1):
        try:
            item = _item(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
        if item.id in items:
            first = list(items).index(item.id) + 1
            raise ValueError(f'{path}, row {number}: id: "{item.id}" stands in row {first} too; ids have to differ')
        items[item.id] = item
    return list(items.values())


def write_items(items: Iterable[TrainingItem], path: Path | str) -> None:
    """Write a `.parquet`, `.jsonl` or `.jsonl.gz` file; it appears whole or not at all.

    Raises:
        ValueError: another ending, or an id that comes twice.
    """
    path, items = Path(path), list(items)
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ValueError(f'id: "{twice[0]}" comes more than once; ids have to differ')
    _check_suffix(path)
    with replacing_file(path) as unfinished:
        if path.suffix == ".parquet":
            _write_parquet(items, unfinished)
        else:
            write_lines(map(_row, items), unfinished, gzipped=path.suffix == ".gz")


def _check_suffix(path: Path) -> None:
    if not path.name.endswith(SUFFIXES):
        raise ValueError(f"{path}: items are kept in .parquet, .jsonl or .jsonl.gz")


def _item(row: Mapping[str, Any]) -> TrainingItem:
    """The item that a row holds; columns that are not known are left aside. Raises ValueError that names the column."""
    known = {name: row[name] for name in COLUMNS if name in row}
    if row.get("messages") is not None:
        known["prompt"] = row["messages"]
    try:
        # Through JSON, where lists are tuples and nothing else is taken for something else.
        item = _ITEM.validate_json(json.dumps(known, default=lambda value: None), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        column = str(first["loc"][0]) if first["loc"] else "row"
        missing = first["type"] == "missing"
        raise ValueError(f'the column "{column}" is missing' if missing else f"{column}: {first['msg']}") from None
    num = len(item.responses)
    if num < 2 or (item.mode is not Mode.LISTWISE and num != 2):
        wanted = "2 or more" if item.mode is Mode.LISTWISE else "exactly 2"
        raise ValueError(f"responses: {num} given, {item.mode} takes {wanted}")
    if item.best is not None and not 0 <= item.best < num:
        raise ValueError(f"best: {item.best} given with {num} responses, it is 0 to {num - 1}, or null")
    if sorted(item.order) != list(range(num)):
        raise ValueError(f"order: {list(item.order)} given, it holds each of 0 to {num - 1} once")
    return item


def _row(item: TrainingItem) -> dict[str, Any]:
    return _ITEM.dump_python(item, mode="json")


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
    schema = pa.schema([(name, columns.get(name, pa.string())) for name in (*COLUMNS, "messages")])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
