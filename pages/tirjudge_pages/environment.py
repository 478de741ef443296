"""Render templates, with Jinja2's autoescape on, and read the files that pages refer to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tirjudge.turn_costs import shown_ms
from tirjudge.types import label_of
from tirjudge_pages.judgment import MAX_ITEMS, MAX_RAW_CHARS, json_text
from tirjudge_pages.untrusted import shown_text, shown_time

_STATIC = resources.files("tirjudge_pages").joinpath("static")

STYLE, SCRIPT = "pages.css", "pages.js"
"""Names of the files that every page uses."""

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript"}
"""Ending of a file in `static` -> its media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NavLink:
    """A link in the header of a page."""

    url: str
    """Path of the page on the server."""
    text: str
    """Text of the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What surrounds the content of a page."""

    links: tuple[NavLink, ...] = ()
    """Links in the header. Empty: the page is a file, or the reader has not logged in."""
    path: str = ""
    """Path of this page on the server. Its link is marked."""
    viewer: str | None = None
    """Name of the reader's key. None: no key is needed, or the reader has not logged in."""
    csrf: str | None = None
    """Token that a form must send as `csrf`. None: the page has no forms that change something."""
    is_file: bool = False
    """Whether the page is one self-contained file without a server."""


def render_page(template: str, *, frame: PageFrame, **values: Any) -> str:
    """Render a page.

    Args:
        template: Name of a file in `templates`, without the ending `.html.j2`.
        frame: What surrounds the content.
        values: Values for the template.
    """
    return _environment().get_template(f"{template}.html.j2").render(frame=frame, **values)


@cache
def asset(name: str) -> bytes:
    """Return a file of the folder `static`.

    Raises:
        KeyError: The file does not exist.
    """
    if name not in asset_names():
        raise KeyError(name)
    return _STATIC.joinpath(name).read_bytes()


@cache
def asset_names() -> frozenset[str]:
    """Return the names of the files in `static`."""
    return frozenset(entry.name for entry in _STATIC.iterdir() if PurePath(entry.name).suffix in MEDIA_TYPES)


@cache
def _asset_url(name: str) -> str:
    """Return the URL of a file. It contains a hash, so that browsers may keep the file forever."""
    return f"/ui/static/{name}?v={hashlib.sha256(asset(name)).hexdigest()[:16]}"


def _asset_text(name: str) -> Markup:
    return Markup(asset(name).decode("utf-8"))  # our own file


@cache
def _environment() -> Environment:
    from tirjudge_pages.policy import FILE_POLICY

    environment = Environment(
        loader=PackageLoader("tirjudge_pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions: dict[str, Any] = {
        "asset_url": _asset_url,
        "asset_text": _asset_text,
        "file_policy": FILE_POLICY,
        "label_of": label_of,
        "max_items": MAX_ITEMS,
        "max_raw_chars": MAX_RAW_CHARS,
        "STYLE": STYLE,
        "SCRIPT": SCRIPT,
    }
    environment.globals.update(functions)
    environment.filters |= {
        "json": json_text,
        "ms": shown_ms,
        "shown": shown_text,
        "time": shown_time,
    }
    return environment
