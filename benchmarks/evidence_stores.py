"""Measure stores of evidence: a graph of 64,000 triples, a table of 1,000,000 rows, and a small table that a request brings.

    python -m benchmarks.evidence_stores --out benchmarks/results/evidence_stores.json

The contents are generated from a seed. For each store: the time from its files to an open store, the first query, and
later queries of each kind (point, filter, group-by). They alternate with an empty query of the same store and with an
empty program of a plain sandbox, so that `over_plain`, the ratio of the medians, depends less on the load of the machine.
`pause_s` is the time between queries: a model thinks meanwhile, and the store prepares a process for the next query. Then
1,000 queries run without a pause, and the resources of this process and of all its descendants are compared. The table that a
request brings (`attached`) has two files and 200 rows, and each query opens it.

`own_memory_mb` is the proportional set size: a page that processes share counts for each only in part.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.reporting import Out, report
from tirjudge.types import AttachedStore
from tirjudge_evidence.stores import EvidenceStore, LazyPools, StoreSettings, open_attached, open_store
from tirjudge_sandbox import SandboxPool

NUM_TRIPLES_OF_A_LOAN = 8

QUERIES: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "graph": {
        "point": ("sparql", {"query": "SELECT ?p ?o { ex:loan4711 ?p ?o }"}),
        "filter": ("sparql", {"query": "SELECT (COUNT(*) AS ?n) { ?loan ex:amount ?a FILTER(?a > 40000) }"}),
        "group_by": (
            "sparql",
            {"query": "SELECT ?c (SUM(?a) AS ?s) { ?loan ex:country ?c ; ex:amount ?a } GROUP BY ?c ORDER BY ?c"},
        ),
        "is_a": ("is_a", {"thing": "loan4711", "cls": "Agreement"}),
        "shacl": ("shacl", {"data": "ex:loan4711 ex:amount -5 ."}),
    },
    "table": {
        "point": ("sql", {"query": "SELECT * FROM loans WHERE id = 471147"}),
        "filter": ("sql", {"query": "SELECT count(*) FROM loans WHERE amount > 40000 AND country = 'c7'"}),
        "group_by": ("sql", {"query": "SELECT country, sum(amount) FROM loans GROUP BY country ORDER BY country"}),
    },
}
"""Kind of store -> kind of query -> operation and arguments."""

_EMPTY = {"graph": ("ask", {"query": "ASK {}"}), "table": ("sql", {"query": "SELECT 1"})}

_ONTOLOGY = """\
@prefix ex: <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ex:Agreement a owl:Class . ex:Loan rdfs:subClassOf ex:Agreement . ex:Mortgage rdfs:subClassOf ex:Loan .
ex:ConsumerLoan rdfs:subClassOf ex:Loan ; owl:disjointWith ex:Mortgage .
ex:amount rdfs:domain ex:Loan ; rdfs:range xsd:decimal .
"""
_SHAPES = """\
@prefix ex: <http://example.org/> . @prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ex:LoanShape a sh:NodeShape ; sh:targetClass ex:Loan ;
  sh:property [ sh:path ex:amount ; sh:minInclusive 0 ; sh:datatype xsd:integer ] ;
  sh:property [ sh:path ex:borrower ; sh:minCount 1 ; sh:class ex:Person ] .
"""


def write_graph(folder: Path, *, triples: int, seed: int) -> StoreSettings:
    """Write a graph with about the given number of triples."""
    draw = random.Random(seed)
    with (folder / "loans.ttl").open("w", encoding="utf-8") as file:
        file.write("@prefix ex: <http://example.org/> .\n")
        for number in range(triples // NUM_TRIPLES_OF_A_LOAN):
            kind = draw.choice(("Mortgage", "ConsumerLoan", "Loan"))
            file.write(
                f'ex:loan{number} a ex:{kind} ; ex:amount {draw.randrange(50_000)} ; ex:country "c{draw.randrange(50)}" ; '
                f'ex:rate {draw.random():.4f} ; ex:note "note {draw.random()}" ; ex:borrower ex:person{number} .\n'
                f'ex:person{number} a ex:Person ; ex:name "person {number}" .\n'
            )
    (folder / "ontology.ttl").write_text(_ONTOLOGY, encoding="utf-8")
    (folder / "shapes.ttl").write_text(_SHAPES, encoding="utf-8")
    return StoreSettings.model_validate(
        {"name": "g", "kind": "graph", "files": ["loans.ttl"], "ontology": ["ontology.ttl"], "shapes": ["shapes.ttl"]}
    )


def write_table(folder: Path, *, rows: int, seed: int) -> StoreSettings:
    """Write a table with the given number of rows."""
    draw = random.Random(seed)
    with (folder / "loans.csv").open("w", encoding="utf-8") as file:
        file.write("id,name,amount,country\n")
        for number in range(rows):
            file.write(f"{number},name {number},{draw.randrange(5_000_000) / 100},c{draw.randrange(50)}\n")
    return StoreSettings.model_validate({"name": "t", "kind": "table", "files": ["loans.csv"]})


async def measure(
    settings: StoreSettings, *, folder: Path, rounds: int, judgments: int, pause_s: float
) -> dict[str, Any]:
    """Return the figures of one store."""
    before = {process.pid for process in _descendants()}
    start = time.perf_counter()
    async with SandboxPool(slots=1) as plain, open_store(settings, folder=folder) as store:
        found: dict[str, Any] = {
            "level": store.pool.level,
            "open_s": round(time.perf_counter() - start, 3),
            "size": store.card.size,
            "file_mb": round(store.card.num_bytes / 1e6, 1),
        }
        queries = QUERIES[settings.kind]
        found["first_query_ms"] = round(1000 * await _timed(store, *queries["point"]), 2)
        times: dict[str, list[float]] = {name: [] for name in ("plain_program", "empty", *queries)}
        for _ in range(rounds):
            start = time.perf_counter()
            await plain.run("pass", bindings={})
            times["plain_program"].append(time.perf_counter() - start)
            await asyncio.sleep(pause_s)
            for name, query in {"empty": _EMPTY[settings.kind], **queries}.items():
                times[name].append(await _timed(store, *query))
                await asyncio.sleep(pause_s)
        found |= _over_plain(times)
        of_store = [process for process in _descendants() if process.pid not in before]
        found["processes"] = _memory_of(of_store)
        found["judgments"] = await _grown(store, queries=[*queries.values()], number=judgments)
    return found


async def measure_attached(*, rounds: int, pause_s: float, seed: int) -> dict[str, Any]:
    """Return the figures of a small table that a request brings, which each query opens."""
    draw = random.Random(seed)
    loans = "".join(f"{n},name {n},{draw.randrange(5_000_000) / 100},b{n % 10}\n" for n in range(190))
    branches = "".join(f"b{number},manager {number}\n" for number in range(10))
    files = [
        {"name": "loans.csv", "format": "csv", "text": f"id,name,amount,branch\n{loans}"},
        {"name": "branches.csv", "format": "csv", "text": f"branch,manager\n{branches}"},
    ]
    given = AttachedStore.model_validate({"name": "loans", "kind": "table", "files": files})
    query = "SELECT manager FROM loans JOIN branches USING (branch) WHERE id = 17"
    times: dict[str, list[float]] = {"plain_program": [], "join": []}
    pools = LazyPools()
    try:
        store = await open_attached(given, pools=pools)
        async with SandboxPool(slots=1) as plain:
            for _ in range(rounds):
                start = time.perf_counter()
                await plain.run("pass", bindings={})
                times["plain_program"].append(time.perf_counter() - start)
                await asyncio.sleep(pause_s)
                times["join"].append(await _timed(store, "sql", {"query": query}))
                await asyncio.sleep(pause_s)
    finally:
        await pools.close()
    return _over_plain(times)


def _over_plain(times: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    plain_s = statistics.median(times["plain_program"])
    return {
        name: _percentiles(each) | {"over_plain": round(statistics.median(each) / plain_s, 2)}
        for name, each in times.items()
    }


async def _timed(store: EvidenceStore, operation: str, arguments: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    await store.ask(operation, **arguments)
    return time.perf_counter() - start


async def _grown(store: EvidenceStore, *, queries: list[tuple[str, Mapping[str, Any]]], number: int) -> dict[str, Any]:
    """Run queries in turn, and return what this process and its descendants hold before and after."""
    for operation, arguments in queries * 20:
        await store.ask(operation, **arguments)
    before = resources()
    start = time.perf_counter()
    for index in range(number):
        operation, arguments = queries[index % len(queries)]
        await store.ask(operation, **arguments)
    seconds = time.perf_counter() - start
    return {"queries": number, "queries_per_s": round(number / seconds, 1), "before": before, "after": resources()}


def resources() -> dict[str, Any]:
    """Return what this process and all its descendants hold: memory, descriptors and processes."""
    own = psutil.Process()
    others = _descendants()
    return {
        "rss_mb": round(own.memory_info().rss / 1e6, 1),
        "descriptors": own.num_fds(),
        "processes": len(others),
        "processes_pss_mb": round(sum(_pss_mb(process) for process in others), 1),
        "processes_descriptors": sum(_descriptors_of(others)),
    }


def _descriptors_of(processes: list[psutil.Process]) -> Iterator[int]:
    for process in processes:
        try:
            yield process.num_fds()
        except psutil.Error:
            yield 0


def _memory_of(processes: list[psutil.Process]) -> list[dict[str, float]]:
    """Return the memory of each process, largest first."""
    found = [
        {"own_memory_mb": round(_pss_mb(each), 1), "rss_mb": round(each.memory_info().rss / 1e6, 1)}
        for each in processes
    ]
    return sorted(found, key=lambda each: -each["rss_mb"])


def _pss_mb(process: psutil.Process) -> float:
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    return next(int(line.split()[1]) * 1024 / 1e6 for line in text.splitlines() if line.startswith("Pss:"))


def _descendants() -> list[psutil.Process]:
    return psutil.Process(os.getpid()).children(recursive=True)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    seconds = sorted(seconds)
    return {
        f"p{percent}_ms": round(1000 * seconds[min(len(seconds) - 1, len(seconds) * percent // 100)], 2)
        for percent in (5, 50, 99)
    }


def main(
    triples: Annotated[int, typer.Option(help="Triples of the graph.")] = 64_000,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Queries per figure.")] = 200,
    judgments: Annotated[int, typer.Option(help="Queries of the test for growth.")] = 1_000,
    pause_s: Annotated[float, typer.Option(help="Time between measured queries in seconds.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the contents.")] = 0,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    names = ("duckdb", "pyoxigraph", "pyshacl", "rdflib")
    found: dict[str, Any] = {"pause_s": pause_s}
    found["versions"] = {name: importlib.metadata.version(name) for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for settings in (
            write_graph(folder, triples=triples, seed=seed),
            write_table(folder, rows=rows, seed=seed),
        ):
            found[settings.kind] = asyncio.run(
                measure(settings, folder=folder, rounds=rounds, judgments=judgments, pause_s=pause_s)
            )
    found["attached"] = asyncio.run(measure_attached(rounds=rounds, pause_s=pause_s, seed=seed))
    report(found, out)


if __name__ == "__main__":
    typer.run(main)
