"""RDF terms: their values in answers, and the names under which queries know them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyoxigraph

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
SKOS = "http://www.w3.org/2004/02/skos/core#"
SH = "http://www.w3.org/ns/shacl#"

PREFIXES: Mapping[str, str] = {
    "dc": "http://purl.org/dc/elements/1.1/",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "owl": OWL,
    "prov": "http://www.w3.org/ns/prov#",
    "rdf": RDF,
    "rdfs": RDFS,
    "schema": "https://schema.org/",
    "sh": SH,
    "skos": SKOS,
    "xsd": XSD,
}
"""Prefixes that queries may use in every store. A file may declare them otherwise."""

_MAX_DIGITS = 4000
_SIZES = ("int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte")
_SIGNS = ("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger")
_WHOLE = frozenset(XSD + name for name in ("integer", *_SIZES, *_SIGNS))
_REAL = frozenset(XSD + name for name in ("decimal", "double", "float"))


def to_python(term: Any) -> Any:
    """Return the value of a term: an IRI as text, a literal as int, float, bool or text (dates in ISO 8601, and literals
    whose text does not fit their type as it is), a blank node as `_:` with its number, an unbound variable as None."""
    if term is None:
        return None
    if isinstance(term, pyoxigraph.Literal):
        return _literal(term.value, term.datatype.value)
    if isinstance(term, pyoxigraph.NamedNode):
        return term.value
    return str(term)


def _literal(text: str, datatype: str) -> Any:
    try:
        if datatype in _WHOLE and len(text) < _MAX_DIGITS:
            return int(text)
        if datatype in _REAL and len(text) < _MAX_DIGITS:
            number = float(text)
            return number if math.isfinite(number) else text
    except ValueError:
        return text
    if datatype == XSD + "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text, text)
    return text


def local_name(iri: str) -> str:
    """Return the part of an IRI after its last `#`, `/` or `:`."""
    return iri[max(iri.rfind(mark) for mark in "#/:") + 1 :]


def shortened(iri: str, prefixes: Mapping[str, str]) -> str:
    """Return an IRI with the longest prefix that fits, or in angle brackets."""
    fitting = [(len(start), name) for name, start in prefixes.items() if start and iri.startswith(start)]
    if not fitting:
        return f"<{iri}>"
    length, name = max(fitting)
    rest = iri[length:]
    return f"{name}:{rest}" if rest.replace("_", "").replace("-", "").isalnum() else f"<{iri}>"
