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
    ToolError: type[Exception]
    prompt: str

# Program
import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any

Found = tuple[list[Any], list[Any]]
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>|<http://www.w3.org/2004/02/skos/core#prefLabel>"
CLASSES = f"""
SELECT DISTINCT ?c ?l {{
  {{ ?x a ?c }} UNION {{ ?c a <http://www.w3.org/2002/07/owl#Class> }}
  UNION {{ ?x <http://www.w3.org/2000/01/rdf-schema#domain>|<http://www.w3.org/2000/01/rdf-schema#range> ?c }}
  UNION {{ ?c ^<http://www.w3.org/2000/01/rdf-schema#subClassOf>|<http://www.w3.org/2000/01/rdf-schema#subClassOf> ?x }}
  UNION {{ ?c ^<http://www.w3.org/2002/07/owl#disjointWith>|<http://www.w3.org/2002/07/owl#disjointWith> ?x }}
  OPTIONAL {{ ?c {LABEL} ?l }}
}}
"""
UNITS = (
    "eur|usd|gbp|chf|jpy|kg|mg|g|t|km|cm|mm|m|l|ml|kw|kwh|h|min|s|second|minute|hour|day|week|month|year|pct|percent"
)
SMALL = ("zero", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMERALS: dict[str, int] = dict(
    zip(SMALL + TENS, (0, *range(2, 13), *range(20, 100, 10)), strict=True)
)  # "one" is often no number
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = rf"({'|'.join(MONTHS)})[a-z]{{0,6}}\.?"
MEANT = """
cost costed expensive cheap charge charged pay much: price, cost, fee, unit price, list price, rate, amount, total
earn earned paid pay wage make making made: salary, wage, annual salary, hourly wage, income, pay, earnings
start started starting begin began begun kick kicked commence join joined hire hired: start date, start, started,
    start time, begin date, hire date, hired, joined
since: start date, since, hire date, joined, member since
end ended ending finish finished stop stopped over out leave left: end date, end, finish date, end time, expiry date,
    expiration date, leaving date
expire expired expiring run out good valid best until employed: expiry date, expiration date, expires, valid until,
    best before, end date, end
due: due date, due, deadline, due on
weigh weighed heavy: weight, mass, net weight, gross weight
tall high: height, size
long last lasted take took: length, duration, runtime, term, days, hours
wide broad: width, breadth
deep: depth
big large small: size, area, floor area, capacity
old: age, date of birth, year built, year
fast quick: speed, top speed
hot warm cold: temperature
far away: distance
from come: origin, country, city, home town, place of birth
born birthday: date of birth, birth date, birthday, birth year, born, place of birth, birthplace
die died: date of death, death date, died
live lived living: address, city, residence, home address, place of residence, country
where based located find found kept keep stored stand sit sitting put: location, city, place, site, address,
    storage location, room, shelf, bin, warehouse, office, headquarters, country, position
work working for employed: employer, company, department, team, office, workplace
team group: team, department, group
report reporting boss supervisor superior supervise lead led leading run running manage managing charge responsible head in:
    manager, supervisor, boss, team lead, lead, head, responsible person, responsible, director, owner
own owned belong belonged whose: owner, owned by, customer, holder
make making made built build produced: manufacturer, maker, producer, brand, year built, built, year
founded opened built old: founding year, founded, year founded, year built, founding date, opening date, built, year
who wrote write written: author, writer, written by
invent invented design designed drew: inventor, designer, designed by
call phone ring reach dial extension: phone, extension, phone ext, phone number, telephone, extension, mobile, number, contact
email mail write reach: email, email address, mail, e mail
open opened opening: opening time, opening hours, opens, open from, opening date
close closed closing shut: closing time, closes, opening hours, open until, closing date
arrive arrived arriving get land landed in here: arrival time, arrival, arrival date, eta, arrives
leave leaving left depart departed go going off: departure time, departure, departure date, departs
ship shipped sent send: shipping date, ship date, shipped, dispatch date, carrier
deliver delivered come coming: delivery date, delivered, eta, arrival date, supplier
hold fit seat take: capacity, seats, volume
contain contained of made: contents, material, ingredients
rated: rating, score, stars, grade
score scored point: score, points, result, grade, goals
sign signed: signed by, signatory, signing date, signed on, signature date, signed
replace replaced change changed: replacement date, last replacement date, replaced on, replaced
service serviced check checked inspect inspected: last service date, last inspection, inspection date, last checked
update updated touch touched: last update, updated, updated at, update date, last updated
job do position role title function post occupation: job title, title, role, position, occupation, profession
holiday vacation leave day: vacation days left, vacation days, holidays left, days off, leave
many much left stock: quantity, stock, amount, count, number, in stock, units
settled: payment date, paid on, paid
speak spoken: language, languages
colour color: colour, color
"""
"""Words of questions, and the columns that they ask for, the likely ones first."""
BOOLEANS = {"true": True, "yes": True, "y": True, "1": True, "false": False, "no": False, "n": False, "0": False}
DENIAL = r"(?:\b(?:not|never|neither|nor|anything but|other than|rather than|instead of|except)\b|n't\b)"


def named(text: Any) -> str:
    """Return a name for comparisons: its words in lower case, without articles and endings of the plural. The name of an
    IRI is its last part."""
    text = re.sub(r"^\S*[/#:](?=\w)", "", str(text)) if re.match(r"\w*:\S*$", str(text)) else str(text)
    words = re.findall(r"\w+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).replace("_", " ").lower())
    return " ".join(word.removesuffix("s") for word in words if word not in ("the", "a", "an")) or " ".join(words)


def plain(text: str) -> str:
    """Return the words of a text in small letters."""
    return " ".join(re.findall(r"\w+", text.replace("_", " ").lower()))


@cache
def as_asked(text: str) -> str | None:
    """Return a text as the prompt has it, because a judge copies long names with mistakes. A text that the prompt lacks
    becomes the words of the prompt that are most similar to it. None if none are, or others are nearly as similar."""
    asked, size = re.sub(r"^(?:the|our|my) ", "", plain(text)), len(text.split())
    if not asked or f" {asked} " in f" {plain(prompt)} ":
        return text
    if asked > "\u2e80" and asked in plain(prompt):  # Chinese has no blanks
        return text
    shown = prompt[:2000] + "\n" + prompt[2000:][-2000:]
    words = [(each.start(), each.end()) for each in re.finditer(r"\w+(?:[-./#&]\w+)*", shown)]
    matcher, found = SequenceMatcher(b=asked, autojunk=False), [(0.0, 0, 0)]
    for length in range(max(1, size - 1), size + 2):
        for (start, _), (_, end) in zip(words, words[length - 1 :], strict=False):
            matcher.set_seq1(plain(shown[start : min(end, start + 200)]))
            if matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6:
                found.append((matcher.ratio(), start, end))
    best, start, end = max(found)
    others = [ratio for ratio, left, right in found if right <= start or left >= end]
    return shown[start:end] if best >= 0.7 and best - max(others, default=0) >= 0.1 else None


def all_as_asked(name: str, attributes: Iterable[str]) -> tuple[str, ...]:
    """Return a name and attributes as the prompt has them, without attributes that a judge wrote twice.

    Raises:
        LookupError: the prompt does not have the name.
    """
    thing = as_asked(name)
    if thing is None:
        raise LookupError(f"the prompt does not name {name}")
    asked = [as_asked(each) or each for each in attributes]
    words = plain(prompt)
    kept = [
        each
        for place, each in enumerate(asked)
        if each not in asked[:place] or words.count(plain(each)) >= asked.count(each)
    ]
    return thing, *kept


def matching(names: Iterable[tuple[Any, str]], attribute: str) -> list[Any]:
    """Return the keys whose name is an attribute, apart from brackets. Without one, the only key whose name ends with it,
    such as `interest_rate` for "rate", or continues with a unit; then the one of a column that the word asks for, such as
    `salary` for "earn"."""
    asked = named(attribute)
    plain = [(key, named(re.sub(r"[(\[][^()\[\]]*[)\]]", " ", name)), named(name)) for key, name in names]
    exact = [
        key for key, short, name in plain if asked.replace(" ", "") in (short.replace(" ", ""), name.replace(" ", ""))
    ]
    if exact or not asked:
        return exact
    for each in (asked, *meanings(asked)):
        ends = rf"(?:.* )?{re.escape(named(each))}(?: (?:{UNITS}))?"
        longer = [key for key, short, _ in plain if re.fullmatch(ends, short)]
        same = [key for key, short, _ in plain if short == named(each)]
        if longer:
            return same or (longer if len(set(longer)) == 1 else [])
    stems = {stem(one) for one in asked.split()}
    akin = [key for key, short, _ in plain if stems <= {stem(one) for one in short.split() if len(stem(one)) > 3}]
    return akin if len(set(akin)) == 1 else []


def meanings(asked: str) -> list[str]:
    """Return the names of columns that a verb, an adjective or another word of a question asks for."""
    words = {
        word for word in asked.split() if word not in ("how", "for", "get", "got", "to", "off", "year", "month", "last")
    }
    words = words or set(asked.split())
    lines = [line.partition(": ") for line in MEANT.strip().replace("\n    ", " ").split("\n")]
    return [each for keys, _, columns in lines if words <= set(named(keys).split()) for each in columns.split(", ")]


def stem(word: str) -> str:
    """Return a word without its ending, so that "delivered" and "delivery" are equal."""
    for ending in (
        "ement",
        "ment",
        "ation",
        "ition",
        "ion",
        "ing",
        "ery",
        "ed",
        "al",
        "ure",
        "er",
        "or",
        "ry",
        "y",
        "es",
        "e",
        "s",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def sql_name(name: str) -> str:
    """Return a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def columns_named(store: str, attribute: str) -> list[tuple[str, str, list[str]]]:
    """Return the columns of an attribute, each with its table and the other columns of it."""
    columns: dict[str, list[str]] = {}
    query = (
        "SELECT table_name t, column_name c FROM information_schema.columns WHERE table_schema = 'main' "
        "ORDER BY t, ordinal_position"
    )
    for row in sql(store, query, []):
        columns.setdefault(row["t"], []).append(row["c"])
    places = [((table, each), each) for table, names in columns.items() for each in names]
    return [
        (table, column, [key for key in columns[table] if key != column])
        for table, column in matching(places, attribute)
    ]


def in_table(store: str, name: str, attribute: str) -> Found | None:
    """Return the values of an attribute in the rows with a name, in the first column that has the name; None if no table has
    the attribute. Names are compared without punctuation. A name may be in two columns, such as first and last name."""
    rows: list[tuple[int, Any]] = []
    asked = re.sub(r"(?:[\W_]|\bthe\b|\bour\b|\bmy\b)+", " ", name.lower()).strip()
    places = columns_named(store, attribute)
    for table, column, keys in places:
        cells = cells_of(keys)
        plain = r"trim(regexp_replace(lower({}), '([^\pL\pN]|\bthe\b|\bour\b|\bmy\b)+', ' ', 'g'))"
        listed = ", ".join(plain.replace("{}", cell) for cell in cells)
        select = (
            f"SELECT DISTINCT v, coalesce(list_position(k, ?), 0) a FROM "
            f"(SELECT {sql_name(column)} v, CAST([{listed}] AS VARCHAR[]) k FROM {sql_name(table)}) "
            "ORDER BY a = 0, a LIMIT 1000"
        )
        rows += [(row["a"], row["v"]) for row in sql(store, select, [asked])]
    first = min((place for place, _ in rows if place), default=-1) if asked else -1
    values = [(place == first, value) for place, value in rows if value is not None]
    found = [value for is_asked, value in values if is_asked]
    return (found, [value for is_asked, value in values if not is_asked]) if places else None


def cells_of(keys: list[str]) -> list[str]:
    """Return SQL for the texts of columns, each with its pair with the next one, such as first and last name."""
    cells = [f"CAST({sql_name(key)} AS VARCHAR)" for key in keys]
    pairs = [f"concat_ws(' ', {first}, {last})" for first, last in pairwise(cells)]
    return [cell for both in zip_longest(cells, pairs) for cell in both if cell]


def full_name(store: str, name: str, attribute: str) -> str | None:
    """Return the only name in the tables with an attribute that contains a name and that the prompt has: a judge may copy a
    part of it, such as the first name."""
    found = set()
    for table, _, keys in columns_named(store, attribute):
        query = f"SELECT DISTINCT unnest([{', '.join(cells_of(keys))}]) c FROM {sql_name(table)} LIMIT 5000"
        cells = {plain(row["c"] or "") for row in (sql(store, query, []) if keys else [])}
        found |= {cell for cell in cells if f" {plain(name)} " in f" {cell} " in f" {plain(prompt)} "}
    longest = max(found, key=len, default="")
    return longest if longest and all(cell in longest for cell in found) else None


def in_graph(store: str, name: str, attribute: str) -> Found | None:
    """Return the values of a property of the nodes with a name; None if the graph lacks the property."""
    properties = sparql(
        store, f"SELECT DISTINCT ?p ?l {{ {{ SELECT DISTINCT ?p {{ ?s ?p ?o }} }} OPTIONAL {{ ?p {LABEL} ?l }} }}"
    )
    asked = set(matching([(row["p"], each) for row in properties for each in (row["p"], row["l"]) if each], attribute))
    found, others = [], []
    key = re.sub(r"[\W_]", "", named(name))
    for each in sorted(asked):
        query = (
            f"SELECT ?s ?n ?o ?l (isIRI(?o) AS ?i) {{ ?s <{each}> ?o OPTIONAL {{ ?s {LABEL} ?n }} "
            f"OPTIONAL {{ ?o {LABEL} ?l }} "
            'BIND(REPLACE(LCASE(CONCAT(STR(?s), COALESCE(STR(?n), ""))), "[^\\\\p{L}\\\\p{N}]", "") AS ?k) } '
            f'ORDER BY DESC(CONTAINS(?k, "{key}")) LIMIT 1000'
        )
        for row in sparql(store, query):
            value = re.sub(r"^.*[/#:](?=.)", "", row["o"]) if row["i"] else row["o"]
            is_asked = key and named(name) in (named(row["s"]), named(row["n"] or ""))
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", value) if row["i"] else value
            (found if is_asked else others).extend([row["l"]] if row["l"] else [value, words])
    return (found, others) if asked else None


def in_documents(store: str, name: str, attribute: str) -> Found | None:
    """Return what the passages about a name tell about an attribute; None if they do not mention it, or mention it without a
    value that a program can read."""
    hits = search(store, f"{name} {attribute}", 9) if name and attribute else []
    texts = [
        re.sub(r"(?<=[\w,])\n(?=[a-z\d])", " ", hit["text"]) for hit in hits
    ]  # without the ends of lines in sentences
    asked, it = (re.escape(each).replace(r"\ ", r"\s+") for each in (attribute, name))
    asked = rf"\b{asked}\b"
    of = rf"\s(?:of|for)\s(?:(?:an?|the|our)\s)?{it}"
    value = r"\s*(?:is|was|are|were|will be|:|=)\s*((?:[^\n.;,(]|[.,](?=\d))+)"
    about = [text for text in texts if re.search(rf"(?i)(?<!\w){it}(?!\w)", text)]
    found = [one for text in about for one in re.findall(rf"(?i){asked}{of}{value}", text)]
    if not found:
        found = [one for text in about for one in re.findall(rf"(?i){asked}{value}", text)]
    if not found and any(re.search(rf"(?i){asked}", text) for text in about):
        return None
    is_mentioned = any(re.search(rf"(?i){asked}", text) for text in texts)
    return ([one.strip() for one in found], []) if found or is_mentioned else None


@cache
def look_up(name: str, *attributes: str) -> Found:
    """Return the values of an attribute of an attribute of ... a thing, and the values of the other things. No value: the
    evidence does not tell.

    Raises:
        LookupError: no store has the attribute.
    """
    values: list[Any] = [name]
    others: list[Any] = []
    for step, attribute in enumerate(attributes):
        found = None
        for store in sorted(stores(), key=lambda each: -each["authority"]):
            find = {"table": in_table, "graph": in_graph, "documents": in_documents}.get(store["kind"])
            here = find(store["name"], str(values[0]), attribute) if find and not (found and found[0]) else None
            if step == 0 and here and not here[0] and find is in_table:
                longer = full_name(store["name"], name, attribute)
                here = in_table(store["name"], longer, attribute) if longer else here
            found = here or found
        if found is None:
            raise LookupError(f"no store tells the {attribute} of anything")
        values, others = found
        if not values:
            break
    return values, others


@cache
def canonical(text: str) -> str:
    """Return a text in small letters with one notation of its dates, numbers, currencies and blanks."""
    text = text.replace("’", "'").replace("−", "-")
    text = re.sub(r"(?<=\d)[T ]00:00(?::00)?\b|(?<=\d\d:\d\d):00\b", "", text)
    text = re.sub(r"(?<=\d)(?:T|,? at )(?=\d\d?:\d\d)", " ", text)
    for sign, code in (r"€|\b[eE]uros?\b", "EUR"), (r"\$|\b[dD]ollars?\b", "USD"), ("£", "GBP"):
        text = re.sub(sign, f" {code} ", text)
    text = re.sub(r"[\s_]+", " ", text).strip()
    text = re.sub(r"\b(EUR|USD|GBP|CHF) *(?=\d)", r"\1 ", text)
    for scale, power in ("[kK]|[tT]housand", 3), ("M|mn|[mM]illion", 6), ("bn|[bB]illion", 9):
        scaled = rf"(?<![\w.,])(\d{{1,9}}(?:[.,]\d{{1,6}})?) ?(?:{scale})\b"
        text = re.sub(scaled, lambda found: f"{float(found[1].replace(',', '.')) * 10**power:.2f}", text)  # noqa: B023
    return numbers_written(dates_written(text.lower()))


def dates_written(text: str) -> str:
    """Return a text with dates as in 2024-03-01. A date that may be the one of two days, such as 01/03/2024, becomes both."""

    def dated(year: str, month: str, day: str) -> str:
        return f"{year}-{MONTHS.index(month) + 1 if month in MONTHS else int(month):02}-{int(day):02}"

    def slashed(found: re.Match[str]) -> str:
        first, second, year = found.groups()
        days = [dated(year, *pair) for pair in ((first, second), (second, first)) if int(pair[0]) <= 12]
        return "|".join(dict.fromkeys(days)) or found[0]

    text = re.sub(
        rf"\b(\d\d?)(?:st|nd|rd|th|\.)? (?:of )?{MONTH},? (\d{{4}})\b", lambda m: dated(m[3], m[2], m[1]), text
    )
    text = re.sub(rf"\b{MONTH} (\d\d?)(?:st|nd|rd|th)?,? (\d{{4}})\b", lambda m: dated(m[3], m[1], m[2]), text)
    text = re.sub(r"(?<![\w.])(\d\d?)\.(\d\d?)\.(\d{4})\b", lambda m: dated(m[3], m[2], m[1]), text)
    return re.sub(r"(?<![\w/])(\d\d?)/(\d\d?)/(\d{4})\b", slashed, text)


def numbers_written(text: str) -> str:
    """Return a text with numbers as in 1231.5: words become digits, and separators of thousands are left out."""
    text = re.sub(rf"\b(?:{'|'.join(NUMERALS)})\b", lambda found: str(NUMERALS[found[0]]), text)
    text = re.sub(r"\bminus (?=\d)", "-", text)
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", re.sub(r"(?<![\d.])(?<!\w)\.(?=\d)", "0.", text))
    text = re.sub(r"(?<=\d)(?<!\d{4})[ '](?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", lambda found: found[0].replace(",", ""), text)
    points = r"(?<![\d.,])\d{1,3}(?:(?:\.\d{3})+(?=,\d\d?(?!\d))|(?:\.\d{3}){2,}(?![\d.]))"
    text = re.sub(points, lambda found: found[0].replace(".", ""), text)
    text = re.sub(r"(?<![\d.,])(\d+),(\d\d?)(?![\d,])", r"\1.\2", text)
    text = re.sub(r"(?<![\d.])\d+\.\d+(?!\.?\d)", lambda found: found[0].rstrip("0").rstrip("."), text)
    text = re.sub(rf"(?<=\d)(?=(?:{UNITS})\b)", " ", text)
    return re.sub(r"(?<=\d) ?(?:%|percent\b)", " %", text)


def contexts(r: str, value: str) -> list[tuple[str, str]]:
    """Return what is before and after a value where a text has it and does not deny it."""
    edges = ("", "") if value > "\u2e80" else (r"(?<![\w-])(?<!\d[.,:/])", r"(?!\w|-\w|[.,:/]\d)")  # not in Chinese
    found = re.finditer(edges[0] + re.escape(value) + edges[1], r) if value and value in r else ()
    around = [(r[max(0, each.start() - 40) : each.start()], r[each.end() : each.end() + 25]) for each in found]
    return [
        (before, after)
        for before, after in around
        if not re.search(rf"{DENIAL}[^.,;:!?]{{0,30}}$", before) and not re.match(r" (?:is|was)(?:n't| not)\b", after)
    ]


def stated(r: str, value: Any) -> list[tuple[str, str]]:
    """Return the `contexts` of a value in a response, both in their written forms. A number has them without its unit."""
    if re.fullmatch(r"[A-Z]{1,2}", str(value)):  # "IT" and "it" differ
        return contexts(r, str(value))
    r, text = canonical(r), canonical(str(value))
    amount = re.fullmatch(
        rf"(?:({UNITS}) )?(-?\d+(?:\.\d+)?)(?: (%|(?:{UNITS})s?))?(?: (?:per|before|after|from|for|if)\b.*)?", text
    )
    if amount is None:
        return contexts(r, text)
    unit, number = (amount[1] or amount[3] or "").removesuffix("s"), amount[2]
    found = contexts(r, number)
    if found and unit:
        units = [each[1] or each[2] for each in re.finditer(rf"\b({UNITS})s?\b|\d (%)", r)]
        return found if unit in units or not units else []
    is_part = not found and not unit and number.startswith("0.")
    return contexts(r, canonical(f"{float(number) * 100:.6f} %")) if is_part else found


def knows_nothing(r: str) -> bool:
    """Return whether a response says that the evidence does not tell."""
    denial = r"\b(?:not|no|cannot|nothing|nowhere|none|unable)\b|n['’]t\b"
    telling = (
        r"say|state|tell|contain|list|mention|include|give|show|have|find|found|know|determine|specif|provide|record|exist|"
        r"appear|available|information|data|entry|value|such|match|result|idea|clear|in the|in our|there\b"
    )
    absent = r"\b(?:unknown|unclear|silent|missing|n/a|there(?:['’]s| is| are) (?:no|none|nothing)|h(?:as|ave) no)\b"
    return re.search(rf"(?i)(?:{denial})[^.,;:!?\n]{{0,40}}\b(?:{telling})|\bnot in\b|{absent}", r[:5000]) is not None


def affirms(r: str, what: str) -> bool | None:
    """Return whether a response says yes or no, or that something is (not) `what`; None if it says neither."""
    r = "".join(part for part in re.split(r"(?<=[.!?\n])", r[:5000]) if not part.endswith("?"))
    r = canonical(r).replace("out of", "not in")
    if re.search(r"\b(?:may|might|maybe|perhaps|possibly|either)\b", r):
        return None
    yes = re.search(r"(?<!not )\b(?:yes|yep|yeah)\b", r)
    no = re.search(
        r"\bno(?:pe)?\b(?!\. ?\d)(?=\s*(?:[^\w\s]|$|(?:and|or|but|it|he|she|they|this|that|the|way|i)\b))", r
    )
    if yes or no:
        return None if yes and no else yes is not None
    says = r"\W*(?:(?:it|that|this)(?:'s| is) )?(?:(correct|right|true|indeed|exactly|sure|certainly|definitely)"
    first = re.match(rf"{says}|false|incorrect|wrong)\b(?! not)", r)
    if first:
        return first[1] is not None
    words = r"\W*".join(rf"{re.escape(word)}s?" for word in re.sub(r"^(?:i|ha)s? ", "", named(what)).split()) or "$"
    if knows_nothing(re.sub(rf"\b{words}\b", "so", r)):
        return None
    if re.search(rf"(?:{DENIAL}[^.,;]{{0,30}}\b|\b(?:un|in|non-?|dis)){words}\b|(?:\bnot|n't)(?: one)?\W*$", r):
        return False
    return True if re.search(rf"\b{words}\b|\b(?:is|are|was|has|does)\W*(?:indeed\W*)?$", r) else None


def tells(r: str, name: str, *attributes: str) -> bool:
    """Return whether a response tells what the stores have, and no other value beside it, or that they do not have it."""
    name, *asked = all_as_asked(name, attributes)
    values, others = look_up(name, *asked)
    r = r[:20_000]
    others = [other for other in others if other not in values and not stated(prompt, other)]
    if not values:
        is_guess = re.search(r"(?i)\b(?:guess|probably|likely|perhaps|maybe|assume|(?:should|must|would) be)\b", r)
        return knows_nothing(r) and not is_guess and not any(stated(r, other) for other in others)
    are_booleans = all(str(value).lower() in BOOLEANS for value in [*values, *others])
    if are_booleans and not re.search(r"\b[01]\b", r) and affirms(r, asked[-1]) is not None:
        return affirms(r, asked[-1]) in [BOOLEANS[str(value).lower()] for value in values]
    return any(states_only(r, value, others) for value in values)


def states_only(r: str, value: Any, others: list[Any]) -> bool:
    """Return whether a response states a value, without an alternative and none of some other values."""
    found = stated(r, value)
    before = r"\b(?:or|between) (?:\w+ )?$|\d, -?[\d.]+, $"
    after = r"[^\w.;\n]*(?:\w+ )?or\b|(?:, -?\d[\d.]*){2}"
    if not found or any(re.search(before, left) or re.match(after, right) for left, right in found):
        return False
    text = str(value).lower()
    rest = re.sub(rf"(?i)(?<!\w){re.escape(text)}(?!\w)", " ", r)
    return not any(stated(r if text in str(other).lower() else rest, other) for other in others)


def classes_named(store: str, cls: str) -> Iterator[str]:
    """Yield the classes of a graph with a name."""
    for row in sparql(store, CLASSES):
        if named(cls) in (named(row["c"]), named(row.get("l") or "")):
            yield row["c"]


@cache
def is_in_class(name: str, cls: str) -> bool | None:
    """Return whether the graphs entail that a thing is in a class; None: they do not tell.

    Raises:
        LookupError: no graph has the class.
        ToolError: a query failed although the graph has the thing.
    """
    known = False
    graphs = [store for store in stores() if store["kind"] == "graph"]
    names = dict.fromkeys((name, re.sub(r"^(?i:the|our|my) ", "", name)))
    for store in sorted(graphs, key=lambda each: -each["authority"]):
        for each in classes_named(store["name"], cls):
            known = True
            for one in names:
                try:
                    answer = is_a(store["name"], one, each)
                except ToolError as error:
                    if "no node of the store is named" not in str(error):
                        raise
                    continue
                if answer is not None:
                    return answer
    if not known:
        raise LookupError(f"no graph has the class {cls}")
    return None


def of_kind(r: str, name: str, *path: str) -> bool:
    """Return whether a response rightly says yes, no, or that the stores do not tell: is a thing, or an attribute of it, in
    a class?"""
    name, *path = all_as_asked(name, path)
    things = look_up(name, *path[:-1])[0]
    answer = is_in_class(str(things[0]), path[-1]) if things else None
    said = affirms(r, path[-1])
    return said is answer if answer is not None else said is None and knows_nothing(r)
