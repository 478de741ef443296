"""Write the pages of judgments as self-contained files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tirjudge.durable import private
from tirjudge_harness.items import InputError
from tirjudge_harness.showing.items import ShownItem
from tirjudge_pages import PageFrame, render_page
from tirjudge_pages.judgment import JudgmentView


def write_pages(items: Sequence[ShownItem], output: Path) -> list[Path]:
    """Write one page for each judgment. Return the paths of the files, which only their owner can read.

    Args:
        items: The items.
        output: Path of the file. With several judgments, `page.html` becomes `page-1.html`, `page-2.html`, ...

    Raises:
        InputError: No item was judged, or a file cannot be written.
    """
    views = [view for item in items for view in _views(item)]
    if not views:
        raise InputError("--output: none of the items was judged, so there is no page to write")
    written = []
    for number, view in enumerate(views, start=1):
        path = output if len(views) == 1 else output.with_name(f"{output.stem}-{number}{output.suffix}")
        try:
            with open(path, "w", encoding="utf-8", opener=private) as file:
                file.write(render_page("judgment", frame=PageFrame(is_file=True), view=view, live=None))
        except OSError as error:
            raise InputError(
                f"--output: {path}: {error.strerror}; give the path of a file in an existing folder"
            ) from error
        written.append(path)
    return written


def _views(item: ShownItem) -> Iterator[JudgmentView]:
    if item.record is not None:
        yield JudgmentView.of_record(item.record)
        return
    for asked in item.judgments:
        request: dict[str, Any] = {}
        if item.prompt is not None:
            request["prompt"] = (
                item.prompt if isinstance(item.prompt, str) else [message.model_dump() for message in item.prompt]
            )
        if item.responses is not None:
            request["responses"] = [item.responses[index] for index in asked.responses]
        yield JudgmentView(asked.judgment, request=request, title=item.id)
