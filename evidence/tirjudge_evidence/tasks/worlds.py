"""Worlds: things of an ontology with their values, and the stores of evidence that tell them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from random import Random
from typing import Any

from tirjudge_evidence.tasks.ontologies import Ontology, draw_ontology

NUM_THINGS = (4, 7)
"""Minimum and maximum number of things of a world."""

_SYLLABLES = (
    "bar cal dor fen gil hal jor kes lor mer nor pel ras sol tor var wes yar",
    "an el in or us ick ora eth ian old",
)
_HELD_OUT_SYLLABLES = ("bri cha dru fla gri hou klo mau pru quo sha tri vle zho", "ema usk ilo orn ayn eft umi ost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One thing, with the values of its columns, properties and documents."""

    name: str
    numbers: tuple[int, int]
    link: str
    """Its row of the second table."""
    cls: str
    """Its class, one of the subclasses."""
    since: date
    until: date
    partner: str
    noted: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that is true."""

    ontology: Ontology
    things: tuple[Thing, ...]
    places: Mapping[str, str]
    """Row of the second table -> its word."""
    sizes: Mapping[str, int]
    """Row of the second table -> its number."""
    most: Mapping[str, int]
    """Subclass -> the most that the first number may be."""
    range: str
    """Range of the relation: one of the two classes of partners."""
    seats: Mapping[str, str]
    """Partner -> its seat."""
    spare: tuple[str, ...]
    """Names that nothing has."""


def draw_name(rng: Random, *, held_out: bool) -> str:
    """Draw a name. Names for evaluation and for training have no syllable in common."""
    starts, ends = map(str.split, _HELD_OUT_SYLLABLES if held_out else _SYLLABLES)
    return (rng.choice(starts) + rng.choice(("", rng.choice(starts))) + rng.choice(ends)).capitalize()


def draw_world(rng: Random, *, held_out: bool) -> World:
    """Draw a world."""
    ontology = draw_ontology(rng, held_out=held_out)
    names, taken = list[str](), ontology.names
    while len(names) < 60:
        name = draw_name(rng, held_out=held_out)
        if name not in names and name.lower() not in taken:
            names.append(name)
    take = iter(names).__next__
    classes = [*ontology.classes[0], *ontology.classes[1]]
    rows = [take() for _ in range(rng.randint(3, 4))]
    partners = [take() for _ in range(rng.randint(3, 4))]
    numbers = rng.sample(range(11, 999), 24)
    count = rng.randint(*NUM_THINGS)
    return World(
        ontology=ontology,
        things=tuple(
            _draw_thing(rng, numbers, name=take(), link=rng.choice(rows), cls=rng.choice(classes), notes=(take(), take()),
                        partner=rng.choice(partners))
            for _ in range(count)
        ),
        places={row: take() for row in rows},
        sizes={row: numbers.pop() for row in rows},
        most={cls: rng.randint(100, 990) for cls in classes},
        range=rng.choice(ontology.partners),
        seats={partner: take() for partner in partners},
        spare=tuple(names[-4:]),
    )  # fmt: skip


def _draw_thing(
    rng: Random, numbers: list[int], *, name: str, link: str, cls: str, notes: tuple[str, str], partner: str
) -> Thing:
    since = date(2015, 1, 1) + timedelta(days=rng.randrange(2500))
    return Thing(
        name=name,
        numbers=(numbers.pop(), numbers.pop()),
        link=link,
        cls=cls,
        since=since,
        until=since + timedelta(days=rng.randrange(60, 1500)),
        partner=partner,
        noted=notes,
    )


# Stores -------------------------------------------------------------------------------------------------------------------


def table_store(
    world: World,
    *,
    rng: Random,
    name: str = "register",
    older: Sequence[tuple[Thing, date]] = (),
    stamps: Mapping[str, date] | None = None,
    **card: Any,
) -> dict[str, Any]:
    """Return a store of tables, in the layout of `AttachedStore`.

    Args:
        world: the world.
        rng: draws the order of the rows.
        name: name of the store.
        older: outdated entries with their days.
        stamps: name of a thing -> day of its entry. None: the table has no such column.
        card: further fields, such as `authority`.
    """
    ontology = world.ontology
    header = [
        "name", *ontology.numbers, ontology.grade, ontology.link, ontology.since, ontology.until,
    ]  # fmt: skip
    entries = [(thing, (stamps or {}).get(thing.name)) for thing in world.things] + list(older)
    rng.shuffle(entries)
    rows = [
        [thing.name, *thing.numbers, thing.cls, thing.link, thing.since, thing.until, *([] if day is None else [day])]
        for thing, day in entries
    ]
    if stamps is not None:
        header.append(ontology.stamp)
    others = [[row, world.places[row], world.sizes[row]] for row in world.places]
    limits = [[cls, most] for cls, most in world.most.items()]
    files = [
        (ontology.table, [header, *rows]),
        (ontology.other, [[ontology.link, ontology.place, ontology.size], *others]),
        (ontology.limits, [[ontology.grade, ontology.most], *limits]),
    ]
    return {
        "name": name,
        "kind": "table",
        **card,
        "files": [{"name": f"{table}.csv", "format": "csv", "text": _csv(cells)} for table, cells in files],
    }


def graph_store(world: World, *, name: str = "graph") -> dict[str, Any]:
    """Return a store with the classes, properties and things as a graph."""
    ontology = world.ontology
    first, second = ontology.groups
    ranges = world.range
    rules = [
        f":{second} owl:disjointWith :{first} .",
        f":{ontology.partners[0]} owl:disjointWith :{ontology.partners[1]} .",
        f":{ontology.relation} rdfs:range :{ranges} .",
        *(
            f":{cls} rdfs:subClassOf :{group} ."
            for group, classes in zip(ontology.groups, ontology.classes, strict=True)
            for cls in classes
        ),
    ]
    facts = [
        f':{thing.name} a :{thing.cls} ; rdfs:label "{thing.name}" ; :{ontology.relation} :{thing.partner} .'
        for thing in world.things
    ]
    facts += [f':{one} rdfs:label "{one}" ; :{ontology.seat} "{seat}" .' for one, seat in world.seats.items()]
    prefixes = (
        "@prefix : <urn:world:> .\n@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
        "@prefix owl: <http://www.w3.org/2002/07/owl#> .\n"
    )
    return {
        "name": name,
        "kind": "graph",
        "files": [
            {"name": "facts.ttl", "format": "turtle", "text": prefixes + "\n".join(facts) + "\n"},
            {"name": "classes.ttl", "format": "turtle", "text": prefixes + "\n".join(rules) + "\n", "part": "ontology"},
        ],
    }


def document_store(
    world: World,
    *,
    rng: Random,
    things: Sequence[Thing],
    name: str = "notes",
    instructions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a store with one short document for each of some things.

    Args:
        world: the world.
        rng: draws the wording.
        things: things that have a document.
        name: name of the store.
        instructions: name of a thing -> an instruction to the judge that its document contains.
    """
    files = []
    for thing in things:
        near = rng.choice([one.name for one in world.things if one is not thing])
        told = [
            rng.choice(("The {n} is {v}.", "Since then, the {n} is {v}.", "As agreed, its {n} is {v}.")).format(
                n=n, v=v
            )
            for n, v in zip(world.ontology.noted, thing.noted, strict=True)
        ]
        rng.shuffle(told)
        sentences = [f"{thing.name} was described together with {near}.", *told]
        if instructions and thing.name in instructions:
            sentences.insert(rng.randint(1, len(sentences)), instructions[thing.name])
        files.append({"name": f"{thing.name.lower()}.txt", "format": "text", "text": " ".join(sentences) + "\n"})
    return {"name": name, "kind": "documents", "files": files}


def with_other_numbers(thing: Thing, numbers: tuple[int, int]) -> Thing:
    """Return a thing as an outdated or less reliable source has it."""
    return replace(thing, numbers=numbers)


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()
