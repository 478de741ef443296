"""Look-ups in the stores of a request: tables (`sql`), graphs (`sparql`, `is_a`) and documents (`search`).

A question asks for an attribute of something, such as the rate of a loan. The store with the highest authority that has the
attribute answers it. `stores()` fails if the judge has no evidence, and `look_up` if no store has the attribute.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    def stores() -> list[dict[str, Any]]: ...
    def sql(store: str, query: str, params: list[Any]) -> list[dict[str, Any]]: ...
    def sparql(store: str, query: str) -> list[dict[str, Any]]: ...
    def search(store: str, query: str, limit: int) -> list[dict[str, Any]]: ...
    def is_a(store: str, thing: str, cls: str) -> bool | None: ...


# Program
import json
import re
from collections.abc import Iterator
from typing import Any

LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
CLASSES = """
SELECT DISTINCT ?c ?l {
  { ?x a ?c } UNION { ?c a <http://www.w3.org/2002/07/owl#Class> }
  UNION { ?x <http://www.w3.org/2000/01/rdf-schema#domain>|<http://www.w3.org/2000/01/rdf-schema#range> ?c }
  UNION { ?c ^<http://www.w3.org/2000/01/rdf-schema#subClassOf>|<http://www.w3.org/2000/01/rdf-schema#subClassOf> ?x }
  UNION { ?c ^<http://www.w3.org/2002/07/owl#disjointWith>|<http://www.w3.org/2002/07/owl#disjointWith> ?x }
  OPTIONAL { ?c <http://www.w3.org/2000/01/rdf-schema#label> ?l }
}
"""


def named(text: Any) -> str:
    """Return a name for comparisons: its words in lower case, without articles and endings of the plural. The name of an
    IRI is its last part."""
    text = re.sub(r"^\S*[/#:](?=\w)", "", str(text)) if re.match(r"\w*:\S*$", str(text)) else str(text)
    words = re.findall(r"\w+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower())
    return " ".join(word.removesuffix("s") for word in words if word not in ("the", "a", "an"))


def by_authority() -> list[dict[str, Any]]:
    """Return the stores, those with the highest authority first."""
    return sorted(stores(), key=lambda each: -each["authority"])


def in_table(store: str, name: str, attribute: str) -> list[Any] | None:
    """Return the values of an attribute in the rows with a name; None if no table has the attribute."""
    columns: dict[str, list[str]] = {}
    query = "SELECT table_name t, column_name c FROM information_schema.columns WHERE table_schema = 'main'"
    for row in sql(store, query, []):
        columns.setdefault(row["t"], []).append(row["c"])
    found, has_attribute = [], False
    for table, names in columns.items():
        for column in names:
            if named(column) != named(attribute):
                continue
            has_attribute = True
            keys = [f'lower(trim(CAST({json.dumps(key)} AS VARCHAR)))' for key in names if key != column]
            if keys:
                where = f"lower(?) IN ({', '.join(keys)})"
                rows = sql(store, f"SELECT DISTINCT {json.dumps(column)} v FROM {json.dumps(table)} WHERE {where}", [name])
                found += [row["v"] for row in rows if row["v"] is not None]
    return found if has_attribute else None


def in_graph(store: str, name: str, attribute: str) -> list[Any] | None:
    """Return the values of a property of the nodes with a name; None if the graph lacks the property."""
    asked = {row["p"] for row in sparql(store, "SELECT DISTINCT ?p { ?s ?p ?o }") if named(row["p"]) == named(attribute)}
    found = []
    for each in sorted(asked):
        query = f"SELECT ?s ?n ?o ?l {{ ?s <{each}> ?o OPTIONAL {{ ?s {LABEL} ?n }} OPTIONAL {{ ?o {LABEL} ?l }} }}"
        for row in sparql(store, query):
            if named(name) in (named(row["s"]), named(row.get("n") or "")):
                found.append(row.get("l") or re.sub(r"^.*[/#:]", "", str(row["o"])))
    return found if asked else None


def in_documents(store: str, name: str, attribute: str) -> list[str] | None:
    """Return what the passages about a name tell about an attribute; None if they do not mention it."""
    texts = [hit["text"] for hit in search(store, f"{name} {attribute}", 9)]
    about = [text for text in texts if name.lower() in text.lower()]
    tells = rf"(?i)\b{re.escape(attribute)}\b(?: (?:of|for) {re.escape(name)})?\s*(?:is|was|are|were|will be|:|=)\s*([^\n.;,]+)"
    found = [value.strip() for text in about for value in re.findall(tells, text)]
    return found if found or any(attribute.lower() in text.lower() for text in texts) else None


def look_up(name: str, *attributes: str) -> list[Any]:
    """Return the values of an attribute of an attribute of ... a thing. Empty: the evidence does not tell.

    Raises:
        LookupError: no store has the attribute.
    """
    values: list[Any] = [name]
    for attribute in attributes:
        found = None
        for store in by_authority():
            find = {"table": in_table, "graph": in_graph, "documents": in_documents}.get(store["kind"])
            here = find(store["name"], str(values[0]), attribute) if find else None
            found = here if here is not None and not found else found
        if found is None:
            raise LookupError(f"no store tells the {attribute} of anything")
        values = found
        if not values:
            break
    return values


def states(r: str, value: Any) -> bool:
    """Return whether a response states a value. Numbers may have other notations."""
    text = str(value).strip().lower()
    if re.fullmatch(r"-?\d+(?:\.\d+)?", text):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d)[, ](?=\d{3}\b)", "", r))
        return any(float(number) == float(text) for number in numbers)
    if re.fullmatch(r"true|false", text):
        return affirms(r) == (text == "true")
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", r.lower()) is not None


def knows_nothing(r: str) -> bool:
    """Return whether a response says that the evidence does not tell."""
    tells = r"\b(?:say|state|tell|contain|list|mention|include|give|show|have|find|know|determine|specify|provide)"
    return re.search(
        rf"(?i)\b(?:not|n't|n’t|no|cannot|nothing|nowhere)\b.{{0,30}}{tells}|n['’]t\b.{{0,30}}{tells}"
        r"|\b(?:not|isn['’]t) (?:in|stated|known|given|found|listed|recorded|available|mentioned|clear|there)\b|\bunknown\b",
        r[:5000],
    ) is not None


def affirms(r: str) -> bool | None:
    """Return whether a response says yes or no; None if it does not."""
    first = re.match(r"\W*(yes|no|correct|right|true|false|incorrect|wrong|indeed|exactly)\b", r, re.I)
    if first:
        return first[1].lower() not in ("no", "false", "incorrect", "wrong")
    if knows_nothing(r):
        return None
    denied = re.search(r"(?i)\b(?:is|are|was) not\b|\b(?:is|are|was)n['’]t\b|\bnot (?:a|an|the|in)\b", r[:5000])
    return False if denied else True if re.search(r"(?i)\b(?:is|are|was)\b", r[:5000]) else None


def tells(r: str, name: str, *attributes: str) -> bool:
    """Return whether a response tells what the stores have, or that they do not have it."""
    values = look_up(name, *attributes)
    return any(states(r, value) for value in values) if values else knows_nothing(r)


def classes_named(store: str, cls: str) -> Iterator[str]:
    """Yield the classes of a graph with a name."""
    for row in sparql(store, CLASSES):
        if named(cls) in (named(row["c"]), named(row.get("l") or "")):
            yield row["c"]


def is_in_class(name: str, cls: str) -> bool | None:
    """Return whether the graphs entail that a thing is in a class; None: they do not tell.

    Raises:
        LookupError: no graph has the class.
    """
    known = False
    for store in by_authority():
        for each in classes_named(store["name"], cls) if store["kind"] == "graph" else ():
            known = True
            try:
                answer = is_a(store["name"], name, each)
            except Exception:  # the graph does not have the thing
                continue
            if answer is not None:
                return answer
    if not known:
        raise LookupError(f"no graph has the class {cls}")
    return None


def of_kind(r: str, name: str, *path: str) -> bool:
    """Return whether a response rightly says yes, no, or that the stores do not tell: is a thing, or an attribute of it, in
    a class?"""
    things = look_up(name, *path[:-1]) if len(path) > 1 else [name]
    answer = is_in_class(str(things[0]), path[-1]) if things else None
    return affirms(r) is answer if answer is not None else affirms(r) is None and knows_nothing(r)
