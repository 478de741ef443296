"""Look-ups in the stores of a request: tables (`sql`), graphs (`sparql`, `is_a`) and documents (`search`).

A question asks for an attribute of something, such as the rate of a loan. The store with the highest authority that has the
attribute answers it. `stores()` fails if the judge has no evidence, and `look_up` if no store has the attribute.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Rows = list[dict[str, Any]]
    stores: Callable[[], Rows]
    sql: Callable[[str, str, list[str]], Rows]
    sparql: Callable[[str, str], Rows]
    search: Callable[[str, str, int], Rows]
    is_a: Callable[[str, str, str], bool | None]
    prompt: str

# Program
import re
from collections.abc import Iterator
from typing import Any

Found = tuple[list[Any], list[Any]]
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


def sql_name(name: str) -> str:
    """Return a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def columns_named(store: str, attribute: str) -> list[tuple[str, str, list[str]]]:
    """Return the columns with a name, each with its table and the other columns of it. Without such a column, the only one
    whose name ends with it, such as `interest_rate` for "rate"."""
    columns: dict[str, list[str]] = {}
    query = "SELECT table_name t, column_name c FROM information_schema.columns WHERE table_schema = 'main'"
    for row in sql(store, query, []):
        columns.setdefault(row["t"], []).append(row["c"])
    places = [
        (table, each, [key for key in names if key != each]) for table, names in columns.items() for each in names
    ]
    exact = [place for place in places if named(place[1]) == named(attribute)]
    longer = [place for place in places if named(place[1]).endswith(f" {named(attribute)}")]
    return exact or (longer if len(longer) == 1 else [])


def in_table(store: str, name: str, attribute: str) -> Found | None:
    """Return the values of an attribute in the rows with a name; None if no table has the attribute."""
    found, others = [], []
    names = [name.lower(), re.sub(r"^(?:the|our|my) ", "", name.lower())]
    places = columns_named(store, attribute)
    for table, column, keys in places:
        cells = ", ".join(f"lower(trim(CAST({sql_name(key)} AS VARCHAR)))" for key in keys)
        asked = f"? IN ({cells}) OR ? IN ({cells})" if keys else "? = ? AND false"
        select = f"SELECT DISTINCT {sql_name(column)} v, coalesce({asked}, false) a FROM {sql_name(table)}"
        for row in sql(store, f"{select} ORDER BY a DESC LIMIT 1000", names):
            if row["v"] is not None:
                (found if row["a"] else others).append(row["v"])
    return (found, others) if places else None


def in_graph(store: str, name: str, attribute: str) -> Found | None:
    """Return the values of a property of the nodes with a name; None if the graph lacks the property."""
    properties = sparql(store, "SELECT DISTINCT ?p { ?s ?p ?o }")
    asked = sorted({row["p"] for row in properties if named(row["p"]) == named(attribute)})
    found, others = [], []
    for each in asked:
        query = f"SELECT ?s ?n ?o ?l {{ ?s <{each}> ?o OPTIONAL {{ ?s {LABEL} ?n }} OPTIONAL {{ ?o {LABEL} ?l }} }}"
        for row in sparql(store, query):
            is_asked = named(name) in (named(row["s"]), named(row.get("n") or ""))
            (found if is_asked else others).append(row.get("l") or re.sub(r"^.*[/#:]", "", str(row["o"])))
    return (found, others) if asked else None


def in_documents(store: str, name: str, attribute: str) -> Found | None:
    """Return what the passages about a name tell about an attribute; None if they do not mention it."""
    texts = [hit["text"] for hit in search(store, f"{name} {attribute}", 9)]
    of = rf"(?i)\b{re.escape(attribute)}\b(?: (?:of|for) {re.escape(name)})?"
    tells = rf"{of}\s*(?:is|was|are|were|will be|:|=)\s*([^\n.;,]+)"
    about = [text for text in texts if name.lower() in text.lower()]
    found = [value.strip() for text in about for value in re.findall(tells, text)]
    is_mentioned = any(attribute.lower() in text.lower() for text in texts)
    return (found, []) if found or is_mentioned else None


def look_up(name: str, *attributes: str) -> Found:
    """Return the values of an attribute of an attribute of ... a thing, and the values of the other things. No value: the
    evidence does not tell.

    Raises:
        LookupError: no store has the attribute.
    """
    values: list[Any] = [name]
    others: list[Any] = []
    for attribute in attributes:
        found = None
        for store in sorted(stores(), key=lambda each: -each["authority"]):
            find = {"table": in_table, "graph": in_graph, "documents": in_documents}.get(store["kind"])
            here = find(store["name"], str(values[0]), attribute) if find and not (found and found[0]) else None
            found = here or found
        if found is None:
            raise LookupError(f"no store tells the {attribute} of anything")
        values, others = found
        if not values:
            break
    return values, others


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
    denial = r"\b(?:not|no|cannot|nothing|nowhere)\b|n['’]t\b"
    telling = r"say|state|tell|contain|list|mention|include|give|show|have|find|know|determine|specify|provide"
    absent = r"in|stated|known|given|found|listed|recorded|available|mentioned|clear|there"
    says = rf"(?i)(?:{denial}).{{0,30}}\b(?:{telling})|(?:\bnot|n['’]t) (?:{absent})\b|\bunknown\b"
    return re.search(says, r[:5000]) is not None


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
    """Return whether a response tells what the stores have, and no other value beside it, or that they do not have it."""
    values, others = look_up(name, *attributes)
    r = r[:20_000]
    if not values:
        return knows_nothing(r)
    others = [other for other in others if other not in values and not states(prompt, other)]
    return any(states(r, value) for value in values) and not any(states(r, other) for other in others)


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
    for store in stores():
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
    things = look_up(name, *path[:-1])[0]
    answer = is_in_class(str(things[0]), path[-1]) if things else None
    return affirms(r) is answer if answer is not None else affirms(r) is None and knows_nothing(r)
