"""Knowledge graphs: queries, membership of classes, SHACL, and queries that attack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.parsing.work import growth_of
from tirjudge.tools.functions import CallAccount, Offer, ToolError
from tirjudge.types import AttachedFile, AttachedStore, JudgeRequest, Outcome
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.inside.sparql_text import MAX_QUERY_CHARS, check_query
from tirjudge_evidence.stores import EvidenceStore, LazyPools, StoreSettings, open_attached, open_store
from tirjudge_sandbox import SandboxPool

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONTOLOGY = """\
@prefix zoo: <http://example.org/zoo#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
zoo:Animal a owl:Class ; rdfs:label "animal"@en , "Tier"@de .
zoo:Bird rdfs:subClassOf zoo:Animal . zoo:Fish rdfs:subClassOf zoo:Animal ; owl:disjointWith zoo:Bird .
zoo:Penguin rdfs:subClassOf zoo:Bird . zoo:Shark rdfs:subClassOf zoo:Fish .
zoo:Avian owl:equivalentClass zoo:Bird .
zoo:Visitor a owl:Class . zoo:Enclosure a owl:Class . zoo:Plant a owl:Class .
[] a owl:AllDisjointClasses ; owl:members ( zoo:Animal zoo:Visitor zoo:Enclosure ) .
zoo:Swimmer owl:equivalentClass [ a owl:Class ; owl:unionOf ( zoo:Fish zoo:Penguin ) ] .
zoo:Keeper owl:equivalentClass [ owl:intersectionOf ( zoo:Person zoo:Employee ) ] .
zoo:Red rdfs:subClassOf zoo:Green . zoo:Green rdfs:subClassOf zoo:Blue . zoo:Blue rdfs:subClassOf zoo:Red .
zoo:livesIn rdfs:domain zoo:Animal ; rdfs:range zoo:Enclosure .
zoo:sleepsIn rdfs:subPropertyOf zoo:livesIn .
"""

FACTS = """\
@prefix zoo: <http://example.org/zoo#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
zoo:pingu a zoo:Penguin ; rdfs:label "Pingu"@en ; zoo:age 7 ;
  zoo:weight 12.5 ; zoo:tame true ; zoo:born "2019-05-01"^^xsd:date .
zoo:jaws a zoo:Shark ; zoo:age 12 ; zoo:friend [ zoo:age 3 ] .
zoo:rex zoo:sleepsIn zoo:cave .
zoo:kim a zoo:Keeper . zoo:dot a zoo:Red . zoo:thing1 rdfs:label "Mercury" . zoo:thing2 rdfs:label "Mercury" .
zoo:odd zoo:age "seven"^^xsd:integer .
"""

SHAPES = """\
@prefix zoo: <http://example.org/zoo#> . @prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
zoo:AnimalShape a sh:NodeShape ; sh:targetClass zoo:Animal ;
  sh:property [ sh:path zoo:age ; sh:maxInclusive 10 ; sh:message "An animal is at most 10 years old." ] ;
  sh:property [ sh:path zoo:friend ; sh:or ( [ sh:class zoo:Animal ] [ sh:datatype xsd:string ] ) ; sh:severity sh:Warning ] .
zoo:WeightShape a sh:NodeShape ; sh:targetSubjectsOf zoo:weight ;
  sh:sparql [ sh:message "The weight of {$this} is above 100 kg." ; sh:prefixes zoo: ;
    sh:select "SELECT $this ?value { $this <http://example.org/zoo#weight> ?value FILTER(?value > 100) }" ] .
"""

ZOO = "http://example.org/zoo#"


def attached(*, world: str = "open", **texts: str) -> AttachedStore:
    """Return a store of a request. The names of `texts` are parts."""
    files = [AttachedFile(name=f"{part}.ttl", format="turtle", text=text, part=part) for part, text in texts.items()]
    return AttachedStore(name="zoo", kind="graph", world=world, files=files)


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[EvidenceStore]:
    for name, text in (("facts.ttl", FACTS), ("ontology.ttl", ONTOLOGY), ("shapes.ttl", SHAPES)):
        (folder / name).write_text(text)
    given = {
        "name": "zoo",
        "kind": "graph",
        "files": ["facts.ttl"],
        "ontology": ["ontology.ttl"],
        "shapes": ["shapes.ttl"],
    }
    async with open_store(StoreSettings.model_validate(given | settings), folder=folder) as store:
        yield store


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def zoo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EvidenceStore]:
    async with opened(tmp_path_factory.mktemp("zoo")) as store:
        yield store


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pools() -> AsyncIterator[LazyPools]:
    found = LazyPools()
    try:
        yield found
    finally:
        await found.close()


# ---------------------------------------------------------------------------------------------------------------- queries


async def test_values_are_those_of_python(zoo: EvidenceStore) -> None:
    rows = await zoo.ask("sparql", query="SELECT ?p ?o { zoo:pingu ?p ?o FILTER(?p != rdf:type) }")
    assert {row["p"].removeprefix(ZOO): row["o"] for row in rows} == {
        "http://www.w3.org/2000/01/rdf-schema#label": "Pingu",
        "age": 7,
        "weight": 12.5,
        "tame": True,
        "born": "2019-05-01",
    }


async def test_literals_that_do_not_fit_their_type_stay_text(zoo: EvidenceStore) -> None:
    assert await zoo.ask("sparql", query="SELECT ?a { zoo:odd zoo:age ?a }") == [{"a": "seven"}]


async def test_unbound_variables_are_none(zoo: EvidenceStore) -> None:
    query = "SELECT ?a ?w { zoo:jaws zoo:age ?a OPTIONAL { zoo:jaws zoo:weight ?w } }"
    assert await zoo.ask("sparql", query=query) == [{"a": 12, "w": None}]


async def test_construct_returns_triples(zoo: EvidenceStore) -> None:
    found = await zoo.ask("sparql", query="CONSTRUCT { ?s zoo:old ?a } { ?s zoo:age ?a FILTER(?a > 10) }")
    assert found == [{"s": f"{ZOO}jaws", "p": f"{ZOO}old", "o": 12}]


@pytest.mark.slow
async def test_blank_nodes_have_the_same_name_in_every_opening(zoo: EvidenceStore, pools: LazyPools) -> None:
    query = "SELECT ?f { zoo:jaws zoo:friend ?f }"
    first = await zoo.ask("sparql", query=query)
    again = [
        await (await open_attached(attached(files=FACTS), pools=pools)).ask("sparql", query=query) for _ in range(2)
    ]
    assert again == [first, first]


async def test_ask_and_sparql_refuse_each_others_queries(zoo: EvidenceStore) -> None:
    assert await zoo.ask("ask", query="ASK { zoo:pingu zoo:age 7 }") is True
    assert await zoo.ask("ask", query="ASK { zoo:pingu zoo:age 8 }") is False
    with pytest.raises(ToolError, match="call sparql"):
        await zoo.ask("ask", query="SELECT * { ?s ?p ?o }")
    with pytest.raises(ToolError, match="call ask"):
        await zoo.ask("sparql", query="ASK { ?s ?p ?o }")


@pytest.mark.slow
async def test_description_names_prefixes_classes_and_properties(zoo: EvidenceStore) -> None:
    prefixes, classes, properties, shapes = zoo.card.lines
    assert prefixes == "prefixes: zoo: <http://example.org/zoo#>"
    assert "zoo:Penguin (1)" in classes
    assert "zoo:Visitor (0)" in classes
    assert "zoo:livesIn zoo:Animal -> zoo:Enclosure (0)" in properties
    assert shapes == "shapes: zoo:AnimalShape, zoo:WeightShape"
    assert zoo.card.size["triples"] > 30


@pytest.mark.slow
async def test_description_is_bounded(pools: LazyPools) -> None:
    many = "".join(
        f"<http://example.org/s{i}> a <http://example.org/C{i}> ; <http://example.org/p{i}> 1 .\n" for i in range(3000)
    )
    found = await (await open_attached(attached(files=many), pools=pools)).ask("describe")
    assert sum(len(line) for line in found["lines"]) < 10_000
    assert "2,9" in found["lines"][0]
    assert found["size"]["triples"] == 6000


async def test_formats_give_the_same_triples(tmp_path: Path, pools: LazyPools) -> None:
    texts = {
        "turtle": '@prefix e: <http://e/> . e:a e:name "x" .',
        "n-triples": '<http://e/a> <http://e/name> "x" .',
        "json-ld": '{"@context": {"e": "http://e/"}, "@id": "e:a", "e:name": "x"}',
    }
    for format, text in texts.items():
        item = AttachedStore(name="g", kind="graph", files=[AttachedFile(name="g", format=format, text=text)])
        rows = await (await open_attached(item, pools=pools)).ask("sparql", query="SELECT * { ?s ?p ?o }")
        assert rows == [{"s": "http://e/a", "p": "http://e/name", "o": "x"}], format


# ----------------------------------------------------------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("thing", "cls", "expected"),
    [
        ("zoo:pingu", "zoo:Penguin", True),
        ("zoo:pingu", "zoo:Animal", True),
        ("pingu", "Bird", True),
        (f"{ZOO}pingu", f"<{ZOO}Avian>", True),
        ("Pingu", "Tier", True),
        ("pingu", "Fish", False),
        ("pingu", "Shark", False),
        ("pingu", "Visitor", False),
        ("pingu", "Plant", None),
        ("rex", "Animal", True),
        ("rex", "Visitor", False),
        ("cave", "enclosure", True),
        ("cave", "Animal", False),
        ("pingu", "Swimmer", True),
        ("kim", "Employee", True),
        ("dot", "Blue", True),
        ("dot", "Bird", None),
        ("Penguin", "Animal", True),
        ("Penguin", "Fish", False),
        ("Bird", "Penguin", None),
        ("http://example.org/stranger", "Animal", None),
    ],
)
async def test_membership_follows_the_ontology(zoo: EvidenceStore, thing: str, cls: str, expected: bool | None) -> None:
    assert await zoo.ask("is_a", thing=thing, cls=cls) is expected


@pytest.mark.slow
async def test_absence_is_false_only_in_a_closed_world(pools: LazyPools) -> None:
    for world, expected in (("open", None), ("closed", False)):
        store = await open_attached(attached(world=world, files=FACTS, ontology=ONTOLOGY), pools=pools)
        assert await store.ask("is_a", thing="pingu", cls="Plant") is expected
        assert await store.ask("is_a", thing="pingu", cls="Animal") is True


@pytest.mark.slow
async def test_world_of_a_registered_store_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, world="closed") as store:
        assert await store.ask("is_a", thing="pingu", cls="Plant") is False


async def test_unknown_and_ambiguous_names_are_errors(zoo: EvidenceStore) -> None:
    with pytest.raises(ToolError, match="no node of the store is named 'Unicorn'"):
        await zoo.ask("is_a", thing="Unicorn", cls="Animal")
    with pytest.raises(
        ToolError, match=r"names 2 nodes: <http://example\.org/zoo#thing1>, <http://example\.org/zoo#thing2>"
    ):
        await zoo.ask("is_a", thing="mercury", cls="Animal")


# ------------------------------------------------------------------------------------------------------------------- SHACL


async def test_shacl_names_the_violated_shape(zoo: EvidenceStore) -> None:
    found = await zoo.ask("shacl", data="zoo:pingu zoo:age 30 .")
    assert found == {
        "conforms": False,
        "results": [
            {
                "focus": f"{ZOO}pingu",
                "path": f"{ZOO}age",
                "value": 30,
                "shape": f"{ZOO}AnimalShape",
                "severity": "Violation",
                "message": "An animal is at most 10 years old.",
            }
        ],
        "num_results": 1,
    }


async def test_shacl_checks_only_the_nodes_of_the_data(zoo: EvidenceStore) -> None:
    assert (await zoo.ask("shacl"))["num_results"] == 2  # jaws is 12 years old and has an unknown friend
    assert (await zoo.ask("shacl", data="zoo:pingu zoo:age 3 ."))["conforms"] is True


async def test_shacl_checks_nested_shapes_on_values_outside_the_data(zoo: EvidenceStore) -> None:
    """pyshacl's own `focus_nodes` would skip these values."""
    wrong = await zoo.ask("shacl", data="zoo:pingu zoo:friend 5 .")
    assert [(each["value"], each["severity"]) for each in wrong["results"]] == [(5, "Warning")]
    right = await zoo.ask("shacl", data="zoo:pingu zoo:friend zoo:kim , zoo:jaws , 'Bob' .")
    assert [each["value"] for each in right["results"] if each["focus"] == f"{ZOO}pingu"] == [f"{ZOO}kim"]


async def test_shacl_finds_blank_nodes_of_the_data(zoo: EvidenceStore) -> None:
    found = await zoo.ask("shacl", data="[ a zoo:Bird ; zoo:age 99 ] .")
    assert [each["value"] for each in found["results"]] == [99]


async def test_shacl_runs_constraints_in_sparql(zoo: EvidenceStore) -> None:
    found = await zoo.ask("shacl", data="zoo:new zoo:weight 400 .")
    assert [(each["shape"], each["value"]) for each in found["results"]] == [(f"{ZOO}WeightShape", 400)]


async def test_shacl_takes_json_ld(zoo: EvidenceStore) -> None:
    data = '{"@id": "http://example.org/zoo#pingu", "http://example.org/zoo#age": 11}'
    assert (await zoo.ask("shacl", data=data, format="json-ld"))["num_results"] == 1


async def test_shacl_errors_are_clear(zoo: EvidenceStore, pools: LazyPools) -> None:
    with pytest.raises(ToolError, match="data: not readable as turtle"):
        await zoo.ask("shacl", data="pingu is old")
    with pytest.raises(ToolError, match="no shapes"):
        await (await open_attached(attached(files=FACTS), pools=pools)).ask("shacl")
    with pytest.raises(ToolError, match="limit is 10,000"):
        await zoo.ask("shacl", data="".join(f"zoo:a zoo:p {i} .\n" for i in range(10_001)))


@pytest.mark.parametrize("term", ["rule", "target", "js"])
async def test_shapes_that_would_be_left_out_are_refused(pools: LazyPools, term: str) -> None:
    shapes = f"@prefix sh: <http://www.w3.org/ns/shacl#> . <http://e/S> a sh:NodeShape ; sh:{term} [] ."
    with pytest.raises(ToolError, match=f"sh:{term} is not supported"):
        await (await open_attached(attached(files=FACTS, shapes=shapes), pools=pools)).ask("shacl")


async def test_shapes_cannot_query_or_import_from_other_servers(pools: LazyPools) -> None:
    shapes = """@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix zoo: <http://example.org/zoo#> .
    <urn:o> <http://www.w3.org/2002/07/owl#imports> <http://127.0.0.1:9/x.ttl>, <file:///etc/passwd> .
    zoo:S a sh:NodeShape ; sh:targetNode zoo:pingu ;
      sh:sparql [ sh:select "SELECT $this WHERE { SERVICE <http://127.0.0.1:9/> { $this ?p ?o } }" ] ."""
    store = await open_attached(attached(files=FACTS, shapes=shapes), pools=pools)
    with pytest.raises(ToolError, match="must not contain a federated query"):
        await store.ask("shacl")


async def test_recursive_shapes_end(pools: LazyPools) -> None:
    shapes = """@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix zoo: <http://example.org/zoo#> .
    zoo:S a sh:NodeShape ; sh:targetClass zoo:Penguin ; sh:property [ sh:path zoo:mate ; sh:node zoo:S ] ."""
    facts = FACTS + "zoo:pingu zoo:mate zoo:pinga . zoo:pinga zoo:mate zoo:pingu ."
    try:
        found = await (await open_attached(attached(files=facts, shapes=shapes), pools=pools)).ask("shacl")
    except ToolError as error:
        assert "shapes" in str(error)  # noqa: PT017 - both endings are fine
    else:
        assert found["conforms"] in (True, False)


# ----------------------------------------------------------------------------------------------------------------- attacks


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * { SERVICE SILENT <http://127.0.0.1:9/> { ?s ?p ?o } }", "SERVICE queries another server"),
        ("SELECT*FROM<http://127.0.0.1:9/>{?s ?p ?o}", "FROM selects another graph"),
        ("SELECT * { SERV\\u0049CE <http://127.0.0.1:9/> { ?s ?p ?o } }", "SPARQL: error at"),
        ("BASE <file:///etc/passwd> SELECT * FROM <> {}", "FROM selects another graph"),
        ("SELECT * { GRAPH ?g { ?s ?p ?o } }", "GRAPH selects a named graph"),
        ("LOAD <http://127.0.0.1:9/>", "can only be read"),
        ("INSERT DATA { zoo:a zoo:b zoo:c }", "can only be read"),
        ("DELETE WHERE { ?s ?p ?o }", "can only be read"),
        ("SELECT " + "(" * 100, "nests more than"),
        ("SELECT ?x { ?x ?y 'open }", "string without its closing"),
        ("SELECT {", "SPARQL: error at 1:"),
        ("SELECT * { ?a ?b ?c . ?d ?e ?f }", "more than 1,000 rows"),
        ("#" * (MAX_QUERY_CHARS + 1), "50,001 characters"),
    ],
)
async def test_query_is_refused(zoo: EvidenceStore, query: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await zoo.ask("sparql", query=query)


_UNITS = ['"', "'", "'''a", "<", "<a", "?", "a.", "a:", "1", ".", "-", "\\", '"\\"', "(", "#", "@a", '"" ']


@pytest.mark.parametrize("unit", _UNITS)
async def test_checking_a_query_takes_linear_time(unit: str) -> None:
    growth = growth_of(check_query, lambda n: (unit * n)[:n], first_size=4000)
    assert growth.is_linear, growth


async def test_words_of_the_language_are_allowed_as_names(zoo: EvidenceStore) -> None:
    query = """SELECT ?from { ?from zoo:label? zoo:service . # FROM <x>
    FILTER("SERVICE" != 'a \\' GRAPH' && ?from != <http://e/LOAD>) }"""
    assert isinstance(await zoo.ask("sparql", query=query), list)


async def test_query_that_crashes_the_library_ends_alone(zoo: EvidenceStore) -> None:
    with pytest.raises(ToolError, match="crash"):
        await zoo.ask("sparql", query="SELECT (" + "!" * 40_000 + "true AS ?x) {}")
    assert await zoo.ask("ask", query="ASK { zoo:pingu zoo:age 7 }") is True


@pytest.mark.slow  # runs until the limit of 5 s of CPU time
async def test_runaway_query_is_stopped(zoo: EvidenceStore) -> None:
    with pytest.raises(ToolError, match="was stopped after"):
        await zoo.ask(
            "sparql", query="SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o }"
        )


@pytest.mark.parametrize(
    "context",
    ['"http://127.0.0.1:9/c"', '{"@import": "http://127.0.0.1:9/c"}', '[{"a": "http://e/a"}, "http://127.0.0.1:9/c"]'],
)
async def test_context_on_another_server_is_refused(pools: LazyPools, context: str) -> None:
    text = f'{{"@context": {context}, "@id": "http://e/a", "http://e/p": 1}}'
    item = AttachedStore(name="g", kind="graph", files=[AttachedFile(name="g", format="json-ld", text=text)])
    with pytest.raises(ToolError, match="its @context is on another server"):
        await (await open_attached(item, pools=pools)).ask("describe")


async def test_huge_literals_do_not_stop_a_query(pools: LazyPools) -> None:
    facts = f'@prefix e: <http://e/> . e:a e:n {"9" * 5000} ; e:t "{"x" * 500_000}" .'
    store = await open_attached(attached(files=facts), pools=pools)
    assert await store.ask("sparql", query="SELECT (STRLEN(?t) AS ?n) { ?s e:t ?t }") == [{"n": 500_000}]
    assert await store.ask("sparql", query="SELECT ?n { ?s e:n ?n }") == [{"n": "9" * 5000}]


async def test_data_stay_in_their_own_query(zoo: EvidenceStore) -> None:
    await zoo.ask("shacl", data="zoo:pingu zoo:age 30 .")
    assert await zoo.ask("sparql", query="SELECT ?a { zoo:pingu zoo:age ?a }") == [{"a": 7}]


async def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.ttl").write_text("this is no turtle")
    settings = StoreSettings.model_validate({"name": "g", "kind": "graph", "files": ["bad.ttl"]})
    with pytest.raises(ValueError, match=r"g: bad\.ttl: not readable as turtle"):
        async with open_store(settings, folder=tmp_path):
            pass


# --------------------------------------------------------------------------------------------------------------- functions


@pytest.mark.slow
async def test_program_queries_a_graph_and_the_record_names_it(tmp_path: Path) -> None:
    (tmp_path / "facts.ttl").write_text(FACTS)
    settings = EvidenceSettings.model_validate({"store": [{"name": "zoo", "kind": "graph", "files": ["facts.ttl"]}]})
    request = JudgeRequest(mode="pointwise", prompt="p", responses=["r"])
    code = """\
rows = sparql("zoo", "SELECT ?a { zoo:pingu zoo:age ?a }")
print(rows, ask("zoo", "ASK { ?s zoo:tame true }"), is_a("zoo", "pingu", "Penguin"))
try:
    shacl("zoo", "zoo:a zoo:b 1 .")
except ToolError as error:
    print(error)
"""
    async with open_stores(settings, folder=tmp_path) as stores, SandboxPool(slots=1) as pool:
        offer = Offer(functions=functions_of(stores), account=CallAccount(), request=request)
        result = await pool.run(code, bindings={}, offer=offer)
        sha256 = stores.registered["zoo"].card.sha256
    assert result.outcome is Outcome.OK, result.error
    assert result.stdout == "[{'a': 7}] True True\nshacl: this store has no shapes\n"
    assert [call.function for call in result.calls] == ["sparql", "ask", "is_a", "shacl"]
    assert all(call.sources == {"zoo": sha256} for call in result.calls)
