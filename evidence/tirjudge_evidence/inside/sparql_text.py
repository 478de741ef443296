"""What a SPARQL query asks for, before it runs: one pass over its tokens.

The isolation keeps a query from the network and its limits end it. The checks here only turn queries that cannot work into
clear errors: some of them would otherwise return an empty result, which a judge could take for absence.
"""

from __future__ import annotations

import re

MAX_QUERY_CHARS = 50_000
"""Maximum length of a query in characters."""

MAX_DEPTH = 64
"""Maximum depth of brackets. The parser is recursive."""

_TOKEN = re.compile(
    r"""
    \#[^\n\r]*                          # a comment
    | <[^<>"{}|^`\\\s]*>                # an IRI
    | [?$]\w+                           # a variable
    | @[A-Za-z][A-Za-z0-9-]*            # a language
    | (?P<word>[^\W\d][\w.-]*(?![\w.:-]))
    | (?:[^\W\d][\w.-]*)?:[\w.:%-]*     # a prefixed name
    | (?P<quote>\"\"\"|\'\'\'|\"|\')
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    """,
    re.VERBOSE,
)
_REFUSED = {
    "service": "SERVICE queries another server; the evidence is only in the store",
    "from": "FROM selects another graph; the store is one graph, leave FROM out",
    "graph": "GRAPH selects a named graph; the store is one graph, leave GRAPH out",
}
_UPDATES = frozenset({"insert", "delete", "load", "clear", "drop", "create", "copy", "move", "add"})


def check_query(query: str) -> None:
    """Refuse a query that the store cannot answer.

    Raises:
        ValueError: the query changes data, reads other graphs or servers, is too long or too deeply nested.
    """
    if len(query) > MAX_QUERY_CHARS:
        raise ValueError(f"the query has {len(query):,} characters, the limit is {MAX_QUERY_CHARS:,}")
    place = depth = 0
    while place < len(query):
        token = _TOKEN.match(query, place)
        if token is None or token.end() == place:
            place += 1
            continue
        place = token.end()
        if token.lastgroup == "quote":
            place = _end_of_string(query, place, quote=token.group())
        elif token.lastgroup == "word":
            word = token.group().lower()
            if word in _REFUSED:
                raise ValueError(_REFUSED[word])
            if word in _UPDATES:
                raise ValueError(
                    f"{token.group()}: the evidence can only be read; write SELECT, ASK, CONSTRUCT or DESCRIBE"
                )
        elif token.lastgroup in ("open", "close"):
            depth += 1 if token.lastgroup == "open" else -1
            if depth > MAX_DEPTH:
                raise ValueError(f"the query nests more than {MAX_DEPTH} brackets")


def _end_of_string(query: str, place: int, *, quote: str) -> int:
    """Return the place after the end of a string that begins before `place`."""
    end = -1
    while True:
        if end < place:  # the quote that was found before is escaped
            end = query.find(quote, place)
        if end < 0:
            raise ValueError(f"the query has a string without its closing {quote}")
        escape = query.find("\\", place, end)
        if escape < 0:
            return end + len(quote)
        place = escape + 2
