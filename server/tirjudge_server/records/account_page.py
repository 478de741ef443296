"""The page of an account: one HTML file without scripts, images or links to other files."""

from __future__ import annotations

from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template

from tirjudge_server.records.account import Account


def account_page(account: Account) -> str:
    """Return the page of an account. All texts are escaped."""
    return _template().render(account=account)


@cache
def _template() -> Template:
    source = resources.files("tirjudge_server").joinpath("records", "account.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
