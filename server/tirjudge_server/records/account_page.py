"""The page of an account: one HTML file without scripts, images or links to other files."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from tirjudge_server.records.account import Account

_FOLDER = resources.files("tirjudge_server").joinpath("records")
_STYLE = _FOLDER.joinpath("account.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

ACCOUNT_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
"""Content security policy of the page: nothing but its own style."""


def account_page(account: Account) -> str:
    """Return the page of an account. All texts are escaped."""
    return _template().render(account=account, style=Markup(_STYLE), policy=ACCOUNT_POLICY)  # our own file


@cache
def _template() -> Template:
    source = _FOLDER.joinpath("account.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
