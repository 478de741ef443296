"""SHACL: the shapes of a store, checked by pyshacl on the pyoxigraph store itself.

Validation reads the graph in place. No rules run, no imports are followed, and no JavaScript is executed. Shapes that need
one of these are refused, because they would be left out silently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import rdflib
from pyoxigraph import Literal, NamedNode
from pyshacl.errors import ReportableRuntimeError, ShapeLoadError
from pyshacl.graph_abstraction import DataGraph, OxigraphDataGraph, to_ox, to_rdf
from pyshacl.helper.path_helper import shacl_path_to_sparql_path
from pyshacl.validator import Validator
from rdflib.namespace import RDF, RDFS, SH
from terms import local_name, to_python

MAX_RESULTS = 1000
"""Maximum number of results of a report."""

MAX_DATA_TRIPLES = 10_000
"""Maximum number of triples of `data`."""

TERMS: Any = SH
"""Terms of SHACL by name. Type checkers do not know that the class has them."""

_UNSUPPORTED = ("target", "rule", "js", "jsLibrary", "expression", "shapesGraph", "entailment")
_PARENTS = ("property", "node", "and", "or", "not", "xone", "qualifiedValueShape")
_SEVERITIES = ("Violation", "Warning", "Info")


class Shapes:
    """Shapes of a store."""

    def __init__(self, quads: Iterable[Any]) -> None:
        """Read the shapes.

        Args:
            quads: triples of the shapes, as pyoxigraph quads.

        Raises:
            ValueError: a shape is malformed or not supported.
        """
        self._graph = rdflib.Graph(bind_namespaces="none")
        for quad in quads:
            triple: Any = (to_rdf(quad.subject), to_rdf(quad.predicate), to_rdf(quad.object))
            self._graph.add(triple)
        for name in _UNSUPPORTED:
            if (None, TERMS[name], None) in self._graph:
                raise ValueError(f"shapes: sh:{name} is not supported; the core constraints of SHACL and sh:sparql are")
        logger = logging.getLogger("pyshacl")
        logger.disabled = True
        empty = DataGraph.from_rdflib(rdflib.Graph())
        validator = Validator(empty, shacl_graph=self._graph, options={"inplace": True, "logger": logger})
        try:
            self._shapes = validator.shacl_graph.shapes
        except (ShapeLoadError, ReportableRuntimeError) as error:
            raise ValueError(f"shapes: {error}") from None
        self._validator = validator

    @property
    def names(self) -> list[str]:
        """The IRIs of the shapes."""
        return sorted({str(shape.node) for shape in self._shapes if isinstance(shape.node, rdflib.URIRef)})

    def validate(self, store: Any, added: Sequence[Any]) -> dict[str, Any]:
        """Check a store against the shapes.

        Args:
            store: the graph; it keeps the added triples.
            added: triples to add. If there are any, only their subjects and objects are checked.

        Returns:
            `conforms`; `results`, sorted, with `focus`, `path`, `value`, `shape`, `severity` and `message`; and
            `num_results`, their number without the limit.

        Raises:
            ValueError: more triples than the limit, or shapes that refer to each other too deeply.
        """
        if len(added) > MAX_DATA_TRIPLES:
            raise ValueError(f"the data has {len(added):,} triples, the limit is {MAX_DATA_TRIPLES:,}")
        store.extend(added)
        graph = _StoreGraph(store)
        executor = self._validator.make_executor()
        nodes = _Nodes(store, added) if added else None
        reports: list[Any] = []
        try:
            for shape in self._shapes:
                # `focus_nodes` of pyshacl would also filter the values that nested shapes check.
                focus = None if nodes is None else nodes.targets_of(shape)
                if focus is None or focus:
                    reports += shape.validate(executor, graph, focus=focus)[1]
        except (ShapeLoadError, ReportableRuntimeError) as error:
            raise ValueError(f"shapes: {error}") from None
        results = sorted(map(self._result, reports), key=lambda result: [str(value) for value in result.values()])
        return {"conforms": not results, "results": results[:MAX_RESULTS], "num_results": len(results)}

    def _result(self, report: Any) -> dict[str, Any]:
        _, node, triples = report
        found: dict[Any, list[Any]] = {}
        for subject, predicate, object in triples:
            if subject == node:
                found.setdefault(predicate, []).append(object[1] if isinstance(object, tuple) else object)

        def one(name: str) -> Any:
            return next(iter(found.get(TERMS[name], ())), None)

        severity = str(one("resultSeverity"))
        messages = sorted(str(each) for each in found.get(TERMS["resultMessage"], ()))
        path = one("resultPath")
        return {
            "focus": _value(one("focusNode")),
            "path": None if path is None else self._path(path),
            "value": _value(one("value")),
            "shape": self._named(one("sourceShape")),
            "severity": local_name(severity) if local_name(severity) in _SEVERITIES else severity,
            "message": messages[0] if messages else "",
        }

    def _path(self, path: Any) -> str:
        """Return a path as SPARQL writes it."""
        if isinstance(path, rdflib.URIRef):
            return str(path)
        return shacl_path_to_sparql_path(self._validator.shacl_graph, path)

    def _named(self, shape: Any) -> str:
        """Return the IRI of a shape, or of the shape around it."""
        waiting, seen = [shape], set()
        while waiting:
            shape = waiting.pop(0)
            if isinstance(shape, rdflib.URIRef):
                return str(shape)
            seen.add(shape)
            around: list[Any] = [*self._graph.subjects(None, shape)]
            waiting += sorted(each for each in around if each not in seen)
        return "_:" + str(shape)


class _StoreGraph(OxigraphDataGraph):  # pyrefly: ignore[invalid-inheritance]
    """The graph of a store. pyshacl asks for its truth value for each result, which would otherwise count all triples."""

    def __bool__(self) -> bool:
        return True


class _Nodes:
    """The nodes of added triples, with what makes them targets of shapes."""

    def __init__(self, store: Any, added: Sequence[Any]) -> None:
        self._store = store
        terms = {term for quad in added for term in (quad.subject, quad.object)}
        self._nodes = [(to_rdf(term), self._classes(term), *self._predicates(term)) for term in terms]

    def targets_of(self, shape: Any) -> list[Any]:
        """Return the nodes that are targets of a shape."""
        nodes, classes, implicit, objects_of, subjects_of = (set(each) for each in shape.target())
        classes |= implicit
        return [
            node
            for node, theirs, outgoing, incoming in self._nodes
            if node in nodes or theirs & classes or outgoing & subjects_of or incoming & objects_of
        ]

    def _classes(self, term: Any) -> set[Any]:
        if isinstance(term, Literal):
            return set()
        found = {quad.object for quad in self._store.quads_for_pattern(term, NamedNode(str(RDF.type)), None)}
        waiting = list(found)
        while waiting:
            above = self._store.quads_for_pattern(waiting.pop(), NamedNode(str(RDFS.subClassOf)), None)
            new = {quad.object for quad in above} - found
            found |= new
            waiting += new
        return {to_rdf(each) for each in found}

    def _predicates(self, term: Any) -> tuple[set[Any], set[Any]]:
        outgoing = [] if isinstance(term, Literal) else self._store.quads_for_pattern(term, None, None)
        incoming = self._store.quads_for_pattern(None, None, term)
        return {to_rdf(each) for each in {quad.predicate for quad in outgoing}}, {
            to_rdf(each) for each in {quad.predicate for quad in incoming}
        }


def _value(term: Any) -> Any:
    return None if term is None else to_python(to_ox(term))
