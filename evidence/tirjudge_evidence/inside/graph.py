"""Knowledge graphs in pyoxigraph: Turtle, N-Triples and JSON-LD files, queried with SPARQL.

All triples of the files and of the ontology are in one graph in memory; the shapes are kept apart. Blank nodes are
numbered in the order of the files, so the same files give the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any
from urllib.parse import quote

import pyoxigraph
from classes import Classes
from sparql_text import check_query
from terms import OWL, PREFIXES, RDF, RDFS, local_name, shortened, to_python

MAX_ROWS = 1000
"""Maximum number of rows of a result."""

MAX_LINE_CHARS = 2000
"""Maximum length of a line of the description."""

_MAX_STEP_TRIPLES = 20_000
"""Maximum number of triples that a step of a rehearsal reads: 10 ms."""

_MAX_REHEARSED_TRIPLES = 100_000
"""Maximum number of triples that a rehearsal reads."""

FORMATS = {
    "turtle": pyoxigraph.RdfFormat.TURTLE,
    "n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "json-ld": pyoxigraph.RdfFormat.JSON_LD,
}

_BUILT_IN = (RDF, RDFS, OWL)
_CLASSES = "SELECT ?c (COUNT(?s) AS ?n) { ?s a ?c } GROUP BY ?c ORDER BY DESC(?n) ?c"
_DECLARED = (
    "SELECT DISTINCT ?c { { ?c a owl:Class } UNION { ?c a rdfs:Class } UNION { ?c rdfs:subClassOf ?d } } ORDER BY ?c"
)
_PROPERTIES = "SELECT ?p (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?p ORDER BY DESC(?n) ?p"
_ENDS = "SELECT ?p ?end ?c { ?p ?end ?c VALUES ?end { rdfs:domain rdfs:range } } ORDER BY ?p ?end ?c"
_NODES = "SELECT DISTINCT ?s { { ?s ?p ?o } UNION { ?x ?p ?s } UNION { ?x ?s ?y } FILTER(isIRI(?s)) }"
_LABELS = "SELECT ?s ?l { ?s rdfs:label|skos:prefLabel ?l FILTER(isIRI(?s)) }"


class Graph:
    """An open graph."""

    def __init__(self, store: Any, *, prefixes: Mapping[str, str], shapes: Any, is_closed: bool) -> None:
        self._store, self._prefixes, self._shapes, self._is_closed = store, dict(prefixes), shapes, is_closed
        self._classes = Classes(store)
        self.operations = {
            "describe": lambda: self.description,
            "sparql": self.sparql,
            "ask": self.ask,
            "is_a": self.is_a,
            "shacl": self.shacl,
        }

    @cached_property
    def description(self) -> dict[str, Any]:
        """The number of triples, and lines with the prefixes, the classes, the properties and the shapes."""
        classes = {row[0].value: to_python(row[1]) for row in self._run(_CLASSES) if _is_iri(row[0])}
        for row in self._run(_DECLARED):
            if _is_iri(row[0]):
                classes.setdefault(row[0].value, 0)
        counts = dict(self._sizes)
        ends: dict[tuple[str, str], list[str]] = {}
        for row in self._run(_ENDS):
            if _is_iri(row[0]) and _is_iri(row[2]):
                ends.setdefault((row[0].value, local_name(row[1].value)), []).append(self._short(row[2].value))
                counts.setdefault(row[0].value, 0)
        theirs = {name: start for name, start in self._prefixes.items() if PREFIXES.get(name) != start}
        properties = []
        for iri, number in counts.items():
            if iri.startswith(_BUILT_IN):
                continue
            domain, range = ("|".join(ends.get((iri, end), ["any"])) for end in ("domain", "range"))
            declared = "" if domain == range == "any" else f" {domain} -> {range}"
            properties.append(f"{self._short(iri)}{declared} ({number:,})")
        own = [(iri, number) for iri, number in classes.items() if not iri.startswith(_BUILT_IN)]
        lines = [
            _line("prefixes", [f"{name}: <{start}>" for name, start in sorted(theirs.items())]),
            _line("classes", [f"{self._short(iri)} ({number:,})" for iri, number in own]),
            _line("properties", properties),
            _line("shapes", [self._short(each) for each in self._shapes.names] if self._shapes else []),
        ]
        size = {"triples": len(self._store), "classes": len(own), "properties": len(properties)}
        return {"lines": [line for line in lines if line], "size": size}

    def sparql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of SELECT as variable -> value, or the triples of CONSTRUCT or DESCRIBE as s, p, o."""
        found = self._checked(query)
        if isinstance(found, pyoxigraph.QueryBoolean):
            raise ValueError("ASK gives a truth value; call ask(store, query)")
        if isinstance(found, pyoxigraph.QuerySolutions):
            names = [variable.value for variable in found.variables]
        else:
            names = ["s", "p", "o"]
        rows = [
            {name: to_python(term) for name, term in zip(names, row, strict=True)}
            for row in islice(found, MAX_ROWS + 1)
        ]
        if len(rows) > MAX_ROWS:
            raise ValueError(f"the result has more than {MAX_ROWS:,} rows; aggregate, or add LIMIT")
        return rows

    def ask(self, query: str) -> bool:
        """Return the answer of an ASK query."""
        found = self._checked(query)
        if not isinstance(found, pyoxigraph.QueryBoolean):
            raise ValueError("ask takes ASK { ... }; for rows call sparql(store, query)")
        return bool(found)

    def is_a(self, thing: str, cls: str) -> bool | None:
        """Return whether the graph entails that a thing is in a class. None: it does not say, and its world is open."""
        member = self._classes.membership(self._node(thing), self._node(cls, is_class=True))
        return False if member is None and self._is_closed else member

    def shacl(self, data: str = "", format: str = "turtle") -> dict[str, Any]:
        """Validate the graph, or the nodes of `data` in the graph with `data`, against the shapes of the store."""
        if self._shapes is None:
            raise ValueError("this store has no shapes")
        added = []
        if data.strip():
            if format == "turtle":
                # One line before the text keeps its line numbers.
                data = "".join(f"@prefix {name}: <{start}> ." for name, start in self._prefixes.items()) + data
            added = [*parsed({"name": "data", "format": format, "data": data.encode()}, prefix="d", prefixes={})]
        return self._shapes.validate(self._store, added)

    def prepare(self) -> None:
        """Compute what all queries of a store share."""
        assert self.description
        assert self._names is not None

    def rehearse(self) -> Iterator[None]:
        """Read the triples of one property after the other: reading counts references in the memory of each triple."""
        bool(self._run("ASK {}"))
        yield
        left = _MAX_REHEARSED_TRIPLES
        for predicate, number in self._sizes:
            left -= number
            if number <= _MAX_STEP_TRIPLES and left >= 0:
                list(self._store.query(f"SELECT (COUNT(?o) AS ?n) {{ ?s <{predicate}> ?o }}"))
                yield

    @cached_property
    def _sizes(self) -> list[tuple[str, int]]:
        """Property -> number of its triples."""
        return [(row[0].value, to_python(row[1])) for row in self._run(_PROPERTIES)]

    def _checked(self, query: str) -> Any:
        check_query(query)
        try:
            return self._run(query)
        except SyntaxError as error:
            raise ValueError(f"SPARQL: {error}") from None

    def _run(self, query: str) -> Any:
        return self._store.query(query, prefixes=self._prefixes)

    def _short(self, iri: str) -> str:
        return shortened(iri, self._prefixes)

    @cached_property
    def _names(self) -> dict[str, list[tuple[str, str]]]:
        """Simplified local name or label -> the names with their IRIs."""
        found: dict[str, list[tuple[str, str]]] = {}
        for (node,) in self._run(_NODES):
            name = local_name(node.value)
            found.setdefault(_simplified(name), []).append((name, node.value))
        for node, label in self._run(_LABELS):
            found.setdefault(_simplified(label.value), []).append((label.value, node.value))
        return found

    def _node(self, name: str, *, is_class: bool = False) -> Any:
        """Return the node that a name of a query means.

        Raises:
            ValueError: no node, or several nodes, have the name.
        """
        name = name.strip()
        if name.startswith("<") and name.endswith(">"):
            return pyoxigraph.NamedNode(name[1:-1])
        if name.startswith("_:"):
            return pyoxigraph.BlankNode(name[2:])
        prefix, colon, rest = name.partition(":")
        if colon and not rest.startswith("//") and prefix in self._prefixes:
            return pyoxigraph.NamedNode(self._prefixes[prefix] + rest)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://\S|urn:\S", name):
            return pyoxigraph.NamedNode(name)
        candidates = self._names.get(_simplified(name), [])
        found = {iri for given, iri in candidates if given == name} or {iri for _, iri in candidates}
        if is_class and len(found) > 1:
            found = {iri for iri in found if self._classes.is_class(pyoxigraph.NamedNode(iri))} or found
        if len(found) == 1:
            return pyoxigraph.NamedNode(found.pop())
        if found:
            several = ", ".join(f"<{iri}>" for iri in sorted(found)[:5])
            raise ValueError(f"{name!r} names {len(found)} nodes: {several}; give one of these IRIs")
        raise ValueError(
            f"no node of the store is named {name[:200]!r}; give an IRI, a prefixed name, a local name or a label"
        )


def open_store(files: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Graph:
    """Load files into a graph.

    Args:
        files: the files; those with the part `shapes` are kept apart.
        settings: `world`: `open` or `closed`.

    Raises:
        ValueError: an unknown format, or a file that cannot be read.
    """
    store, prefixes = pyoxigraph.Store(), {}
    shapes: list[Any] = []
    for number, file in enumerate(files):
        quads = parsed(file, prefix=f"f{number}_" if number else "b", prefixes=prefixes)
        if file["part"] == "shapes":
            shapes += quads
        else:
            store.bulk_extend(quads)
    held = None
    if shapes:
        from shapes import Shapes

        held = Shapes(shapes)
    return Graph(store, prefixes={**PREFIXES, **prefixes}, shapes=held, is_closed=settings.get("world") == "closed")


def parsed(file: Mapping[str, Any], *, prefix: str, prefixes: dict[str, str]) -> Iterator[Any]:
    """Yield the triples of a file, as quads of the default graph.

    Args:
        file: its `name`, `format` and `data`.
        prefix: start of the names of its blank nodes.
        prefixes: receives the prefixes that the file declares; those that are there stay.

    Raises:
        ValueError: an unknown format, or a file that cannot be read.
    """
    name, format = file["name"], file["format"]
    if format not in FORMATS:
        raise ValueError(f"{name}: format {format!r} given, expected {', '.join(FORMATS)}")
    numbers: dict[Any, Any] = {}

    def renamed(term: Any) -> Any:
        if not isinstance(term, pyoxigraph.BlankNode):
            return term
        return numbers.setdefault(term, pyoxigraph.BlankNode(f"{prefix}{len(numbers)}"))

    try:
        quads = pyoxigraph.parse(input=file["data"], format=FORMATS[format], base_iri=f"file:///{quote(name)}")
        for quad in quads:
            yield pyoxigraph.Quad(renamed(quad.subject), quad.predicate, renamed(quad.object))
    except SyntaxError as error:
        if "LoadDocumentCallback" in str(error):
            raise ValueError(f"{name}: its @context is on another server; write the context into the file") from None
        raise ValueError(f"{name}: not readable as {format}: {error}") from None
    for declared, start in quads.prefixes.items():
        prefixes.setdefault(declared, start)


def _is_iri(term: Any) -> bool:
    return isinstance(term, pyoxigraph.NamedNode)


def _simplified(name: str) -> str:
    """Return a name without its case, spaces, hyphens and underscores."""
    return name.casefold().translate(_BLANKS)


_BLANKS = str.maketrans("", "", " -_")


def _line(title: str, items: Sequence[str]) -> str:
    """Return a line of the description, with as many items as fit."""
    if not items:
        return ""
    shown, length = [], len(title)
    for item in items:
        length += len(item) + 2
        if length > MAX_LINE_CHARS:
            break
        shown.append(item)
    more = [f"{len(items) - len(shown):,} more"] if len(shown) < len(items) else []
    return f"{title}: {', '.join([*shown, *more])}"
