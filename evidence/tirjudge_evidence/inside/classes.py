"""Membership of classes: what a graph entails about `thing is a class`, and what it excludes.

RDFS: `rdf:type`, `rdfs:subClassOf`, `rdfs:subPropertyOf`, `rdfs:domain`, `rdfs:range`. OWL: `owl:equivalentClass`,
`owl:intersectionOf`, `owl:unionOf`, `owl:disjointWith`, `owl:complementOf`, `owl:disjointUnionOf`,
`owl:AllDisjointClasses`. Each closure visits a node once, so cycles end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyoxigraph
from terms import OWL, RDF, RDFS

Node = Any

_MAX_LIST = 100_000


def _named(iri: str) -> Any:
    return pyoxigraph.NamedNode(iri)


_TYPE, _FIRST, _REST, _NIL = (_named(RDF + name) for name in ("type", "first", "rest", "nil"))
_SUB_CLASS, _SUB_PROPERTY, _DOMAIN, _RANGE, _CLASS, _RESOURCE = (
    _named(RDFS + name) for name in ("subClassOf", "subPropertyOf", "domain", "range", "Class", "Resource")
)
_EQUIVALENT, _INTERSECTION, _UNION = (_named(OWL + name) for name in ("equivalentClass", "intersectionOf", "unionOf"))
_DISJOINT, _COMPLEMENT, _DISJOINT_UNION = (
    _named(OWL + name) for name in ("disjointWith", "complementOf", "disjointUnionOf")
)
_MEMBERS, _THING, _OWL_CLASS = (_named(OWL + name) for name in ("members", "Thing", "Class"))


class Classes:
    """Classes of a graph."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def membership(self, thing: Node, cls: Node) -> bool | None:
        """Return whether the graph entails that a thing is in a class (True), excludes it (False), or neither (None). A class
        counts as a member of its superclasses. True comes first if the graph contradicts itself."""
        classes = self._above(self._types(thing))
        if cls in classes:
            return True
        wanted = self._above([cls])
        if any(self._excluded(each) & wanted for each in classes):
            return False
        return None

    def is_class(self, node: Node) -> bool:
        """Return whether a node is used as a class."""
        return (
            any(kind in (_CLASS, _OWL_CLASS) for kind in self._objects(node, _TYPE))
            or self._has(node, _SUB_CLASS, None)
            or self._has(None, _SUB_CLASS, node)
            or self._has(None, _TYPE, node)
        )

    def _types(self, thing: Node) -> set[Node]:
        """Return the classes that the facts of a thing name: its types, and the domains and ranges of its properties."""
        found = set(self._objects(thing, _TYPE))
        outgoing = {quad.predicate for quad in self._store.quads_for_pattern(thing, None, None)}
        incoming = {quad.predicate for quad in self._store.quads_for_pattern(None, None, thing)}
        for predicates, of in ((outgoing, _DOMAIN), (incoming, _RANGE)):
            for predicate in _closure(predicates, lambda node: self._objects(node, _SUB_PROPERTY)):
                found.update(self._objects(predicate, of))
        if outgoing or incoming:
            found |= {_THING, _RESOURCE}
        if self.is_class(thing):
            found.add(thing)
        return found

    def _above(self, classes: Iterable[Node]) -> set[Node]:
        """Return classes with all their superclasses."""
        return _closure(classes, self._parents)

    def _parents(self, cls: Node) -> list[Node]:
        found = [*self._objects(cls, _SUB_CLASS), *self._objects(cls, _EQUIVALENT), *self._subjects(_EQUIVALENT, cls)]
        for members in self._objects(cls, _INTERSECTION):
            found += self._list(members)
        for head in self._heads_of(cls):
            found += [*self._subjects(_UNION, head), *self._subjects(_DISJOINT_UNION, head)]
        return found

    def _excluded(self, cls: Node) -> set[Node]:
        """Return the classes that are declared to share no member with a class."""
        found: set[Node] = set()
        for predicate in (_DISJOINT, _COMPLEMENT):
            found |= {*self._objects(cls, predicate), *self._subjects(predicate, cls)}
        for head in self._heads_of(cls):
            if self._has(None, _MEMBERS, head) or self._has(None, _DISJOINT_UNION, head):
                found |= {each for each in self._list(head) if each != cls}
        return found

    def _heads_of(self, item: Node) -> list[Node]:
        """Return the first cells of the lists that contain an item."""
        cells = _closure(self._subjects(_FIRST, item), lambda cell: self._subjects(_REST, cell))
        return [cell for cell in cells if not self._has(None, _REST, cell)]

    def _list(self, head: Node) -> list[Node]:
        items: list[Node] = []
        seen: set[Node] = set()
        while head != _NIL and head not in seen and len(seen) < _MAX_LIST:
            seen.add(head)
            items += self._objects(head, _FIRST)
            head = next(iter(self._objects(head, _REST)), _NIL)
        return items

    def _objects(self, subject: Node, predicate: Node) -> list[Node]:
        if isinstance(subject, pyoxigraph.Literal):
            return []
        return [quad.object for quad in self._store.quads_for_pattern(subject, predicate, None)]

    def _subjects(self, predicate: Node, object: Node) -> list[Node]:
        return [quad.subject for quad in self._store.quads_for_pattern(None, predicate, object)]

    def _has(self, subject: Node, predicate: Node, object: Node) -> bool:
        return next(iter(self._store.quads_for_pattern(subject, predicate, object)), None) is not None


def _closure(start: Iterable[Node], step: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return nodes with all that `step` reaches from them."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(step(waiting.pop())) - found
        found |= new
        waiting += new
    return found
