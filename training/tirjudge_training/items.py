"""What is judged in training, and what is right: items, their files, and which of them are held out.

An item is the unit that a file holds and that is drawn. Pairwise and listwise items show all responses in one stored
order; a pointwise item is a pair whose two responses are each scored alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr, ValidationError, model_validator

from tirjudge.durable import replacing_file
from tirjudge.types import ChatMessage, JudgeRequest, Mode, prompt_text

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


class _Row(BaseModel):
    """An item as a file holds it; columns that it does not know are left aside."""

    model_config = ConfigDict(extra="ignore")

    id: StrictStr
    mode: Mode
    prompt: StrictStr | list[ChatMessage]
    responses: list[StrictStr]
    best: StrictInt | None
    task: StrictStr
    source: StrictStr
    verifiable: StrictBool
    order: list[StrictInt]
    licence: StrictStr = ""
    generator: StrictStr = ""

    @model_validator(mode="after")
    def _fits(self) -> _Row:
        num = len(self.responses)
        if num < 2 or (self.mode is not Mode.LISTWISE and num != 2):
            wanted = "2 or more" if self.mode is Mode.LISTWISE else "exactly 2"
            raise ValueError(f"responses: {num} given, {self.mode} takes {wanted}")
        if self.best is not None and not 0 <= self.best < num:
            raise ValueError(f"best: {self.best} given with {num} responses, it is 0 to {num - 1}, or null")
        if sorted(self.order) != list(range(num)):
            raise ValueError(f"order: {self.order} given, it holds each of 0 to {num - 1} once")
        return self

    def item(self) -> TrainingItem:
        fields = {name: getattr(self, name) for name in _Row.model_fields}
        prompt = self.prompt if isinstance(self.prompt, str) else tuple(self.prompt)
        return TrainingItem(
            **{**fields, "prompt": prompt, "responses": tuple(self.responses), "order": tuple(self.order)}
        )


def read_items(path: Path | str) -> list[TrainingItem]:
    """All items of a `.parquet`, `.jsonl` or `.jsonl.gz` file.

    Parquet has no column of two types: a conversation stands in the column `messages`, and `prompt` is null then.

    Raises:
        ValueError: naming the file, the row (the first is 1) and the column that is missing, of another type or wrong.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: a folder given; a file in it would do, such as {path / 'train.parquet'}")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    items: list[TrainingItem] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(_rows_of(path), start=1):
        item = _parse(row, path=path, number=number)
        if item.id in seen:
            raise ValueError(
                f'{path}, row {number}: id: "{item.id}" stands in row {seen[item.id]} too; ids have to differ'
            )
        seen[item.id] = number
        items.append(item)
    return items


def write_items(items: Iterable[TrainingItem], path: Path | str) -> None:
    """Write a `.parquet`, `.jsonl` or `.jsonl.gz` file; it appears whole or not at all.

    Raises:
        ValueError: another ending, or an id that comes twice.
    """
    path, items = Path(path), list(items)
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ValueError(f'id: "{twice[0]}" comes more than once; ids have to differ')
    write = _writer_of(path)
    with replacing_file(path) as unfinished:
        write(items, unfinished)


def _writer_of(path: Path) -> Any:
    if path.name.endswith(".parquet"):
        return _write_parquet
    if path.name.endswith(".jsonl"):
        return _write_jsonl
    if path.name.endswith(".jsonl.gz"):
        return _write_jsonl_gz
    raise ValueError(f"{path}: items are kept in .parquet, .jsonl or .jsonl.gz")


def _rows_of(path: Path) -> Iterator[Any]:
    _writer_of(path)  # refuses endings that are not ours
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    return _jsonl_rows(path)


def _jsonl_rows(path: Path) -> Iterator[Any]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, row {number}: not JSON: {error}") from None


def _parquet_rows(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: not a Parquet file that can be read: {error}") from None
    for row in table.to_pylist():
        messages = row.pop("messages", None)
        yield {**row, "prompt": messages} if messages is not None else row


def _parse(row: Any, *, path: Path, number: int) -> TrainingItem:
    if not isinstance(row, dict):
        raise ValueError(f"{path}, row {number}: an object with a value for each column is expected")
    try:
        return _Row.model_validate(row).item()
    except ValidationError as error:
        first = error.errors()[0]
        column = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "missing":
            said = f'the column "{column}" is missing'
        else:
            said = f"{column}: {first['msg']}" if column else first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{path}, row {number}: {said}") from None


def _json_row(item: TrainingItem) -> dict[str, Any]:
    prompt = item.prompt if isinstance(item.prompt, str) else [message.model_dump() for message in item.prompt]
    return {**{name: getattr(item, name) for name in _Row.model_fields}, "prompt": prompt, "mode": str(item.mode)}


def _write_jsonl(items: Sequence[TrainingItem], path: Path) -> None:
    path.write_text("".join(json.dumps(_json_row(item), ensure_ascii=False) + "\n" for item in items), encoding="utf-8")


def _write_jsonl_gz(items: Sequence[TrainingItem], path: Path) -> None:
    text = "".join(json.dumps(_json_row(item), ensure_ascii=False) + "\n" for item in items)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))  # the same items give the same bytes


def _write_parquet(items: Sequence[TrainingItem], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for item in items:
        row = _json_row(item)
        is_text = isinstance(item.prompt, str)
        rows.append(
            {**row, "prompt": row["prompt"] if is_text else None, "messages": None if is_text else row["prompt"]}
        )
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    columns = {
        "best": pa.int32(),
        "messages": pa.list_(message),
        "order": pa.list_(pa.int32()),
        "responses": pa.list_(pa.string()),
        "verifiable": pa.bool_(),
    }
    schema = pa.schema([(name, columns.get(name, pa.string())) for name in (*_Row.model_fields, "messages")])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
