"""The vocabularies of worlds: what things are called, their columns, classes and properties.

Training uses `TRAINING` and invented ontologies, whose names are drawn from a list of words. `HELD_OUT` has no name in common
with either, so a judge cannot know its tables, classes and properties from training.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Ontology:
    """The names of one kind of world."""

    name: str
    """Name of the ontology."""
    table: str
    """Table of the things that questions are about, with the column `name`."""
    numbers: tuple[str, str]
    """Its columns with numbers."""
    link: str
    """Its column that refers to the second table."""
    other: str
    """The second table, with the column `link`."""
    place: str
    """Column of the second table with words."""
    size: str
    """Column of the second table with numbers."""
    grade: str
    """Column of the first table with the class, which the table of limits has too."""
    limits: str
    """Table of limits."""
    most: str
    """Column of the table of limits: the most that the first number may be."""
    since: str
    """Column with the first day."""
    until: str
    """Column with the last day."""
    stamp: str
    """Column with the day of an entry, if a thing has several."""
    groups: tuple[str, str]
    """Two disjoint classes."""
    classes: tuple[tuple[str, str], tuple[str, str]]
    """Subclasses of each of the two."""
    relation: str
    """Property from a thing to a partner."""
    partners: tuple[str, str]
    """Two disjoint classes. The range of the property is one of them."""
    seat: str
    """Property from a partner to a word."""
    noted: tuple[str, str]
    """What documents tell about a thing."""

    @property
    def names(self) -> frozenset[str]:
        """All names, in lower case."""
        found: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            parts = (
                [value] if isinstance(value, str) else [*value] if each.name != "classes" else [*value[0], *value[1]]
            )
            found += [part.lower() for part in parts]
        return frozenset(found)


TRAINING: tuple[Ontology, ...] = (
    Ontology(
        name="lending", table="loans", numbers=("amount", "term"), link="branch", other="branches", place="city",
        size="desks", grade="product", limits="caps", most="ceiling", since="opened", until="due", stamp="revision",
        groups=("SecuredLoan", "OpenLoan"), classes=(("Mortgage", "CarLoan"), ("StudentLoan", "CardLoan")),
        relation="guarantor", partners=("Company", "Person"), seat="residence", noted=("officer", "auditor"),
    ),
    Ontology(
        name="clinic", table="drugs", numbers=("dose", "price"), link="maker", other="makers", place="country",
        size="staff", grade="form", limits="rules", most="maximum", since="approved", until="expires", stamp="review",
        groups=("Solid", "Fluid"), classes=(("Tablet", "Powder"), ("Syrup", "Drops")),
        relation="tested", partners=("Laboratory", "Hospital"), seat="location", noted=("inventor", "contact"),
    ),
    Ontology(
        name="school", table="courses", numbers=("hours", "seats"), link="room", other="rooms", place="building",
        size="floor", grade="level", limits="quotas", most="quota", since="begins", until="ends", stamp="update",
        groups=("Science", "Craft"), classes=(("Physics", "Botany"), ("Weaving", "Pottery")),
        relation="teacher", partners=("Professor", "Guest"), seat="hometown", noted=("tutor", "sponsor"),
    ),
    Ontology(
        name="storage", table="goods", numbers=("weight", "count"), link="shelf", other="shelves", place="hall",
        size="height", grade="sort", limits="loads", most="capacity", since="stored", until="sold", stamp="recount",
        groups=("Metal", "Food"), classes=(("Copper", "Steel"), ("Grain", "Fruit")),
        relation="supplier", partners=("Factory", "Farm"), seat="valley", noted=("packer", "buyer"),
    ),
    Ontology(
        name="harbour", table="vessels", numbers=("draught", "tonnage"), link="berth", other="berths", place="quay",
        size="depth", grade="rig", limits="bounds", most="clearance", since="arrived", until="departs", stamp="survey",
        groups=("Tanker", "Ferry"), classes=(("OilTanker", "GasTanker"), ("CarFerry", "TrainFerry")),
        relation="owner", partners=("Shipyard", "Captain"), seat="port", noted=("pilot", "steward"),
    ),
    Ontology(
        name="nursery", table="seedlings", numbers=("spread", "pots"), link="bed", other="beds", place="garden",
        size="rows", grade="family", limits="guides", most="allowance", since="sown", until="picked", stamp="inspection",
        groups=("Shrub", "Herb"), classes=(("Heather", "Privet"), ("Basil", "Thyme")),
        relation="breeder", partners=("Orchard", "Botanist"), seat="region", noted=("gardener", "donor"),
    ),
)  # fmt: skip
"""Ontologies for training."""

HELD_OUT: tuple[Ontology, ...] = (
    Ontology(
        name="astronomy", table="comets", numbers=("mass", "albedo"), link="observatory", other="observatories",
        place="island", size="domes", grade="shape", limits="thresholds", most="cutoff", since="discovered",
        until="faded", stamp="sighting", groups=("Icy", "Rocky"),
        classes=(("Crystal", "Snowball"), ("Boulder", "Pebble")), relation="finder", partners=("Amateur", "Institute"),
        seat="village", noted=("namesake", "archivist"),
    ),
    Ontology(
        name="theatre", table="operas", numbers=("acts", "arias"), link="venue", other="venues", place="suburb",
        size="balconies", grade="genre", limits="norms", most="utmost", since="premiered", until="withdrawn",
        stamp="revival", groups=("Tragedy", "Comedy"), classes=(("Elegy", "Lament"), ("Farce", "Satire")),
        relation="composer", partners=("Conservatory", "Freelancer"), seat="birthplace", noted=("librettist", "costumer"),
    ),
)  # fmt: skip
"""Ontologies for evaluation only."""

_WORDS = (
    "anvil arch axle badge barrel beacon bell bench block board bolt bond book boot bottle bowl box brand brick bridge"
    " brush bucket bundle button cable cage canal candle card carpet cart cask chain chair channel chart chest circle"
    " clock cloth coach coat code coil coin cord corner cotton crate crew crown curve cycle deck desk dial dish"
    " district door draft drum edge engine entry fabric fence field figure file filter flag flame flask fleet fold frame"
    " fuel gate gauge gear glass grid guard guild handle harness hatch hearth hinge hook hoop house index ink item"
    " jar joint judge keel kettle key knot label ladder lamp lane layer leaf ledger lens letter lever line link lock loom"
    " margin mark mask mast meter mill mine mirror model module motor nail net notch number oven page paint panel paper"
    " parcel part patch path pattern pen piece pillar pipe plan plank plate plug point pole pool port post press pulley"
    " pump quarter rack rail range rank rate record reel rent ring road robe rod roll roof root rope route rule saddle"
    " sail scale score screen seal sector shade shaft sheet shield shop sign site slope socket spark spool spring stack"
    " staff stage stair stamp station stem step stone strand street strip suit switch tank tape task test thread ticket"
    " tile tool tower track trade train tray tube tunnel unit vault vent wage wagon wall watch wave wheel wing wire yard"
    " zone"
)


def invented(rng: Random) -> Ontology:
    """Return an ontology whose names are drawn from the list of words. In half of the ontologies, every second name is made
    of random syllables, so that a judge does not rely on known words."""
    words: list[str] = [word for word in rng.sample(_WORDS.split(), len(_WORDS.split())) if word not in _TAKEN]
    if rng.random() < 0.5:
        words[::2] = _made_up(rng, num_words=len(words[::2]))
    take = iter(words).__next__

    def cls() -> str:
        return take().capitalize() + (take().capitalize() if rng.random() < 0.4 else "")

    return Ontology(
        name="invented", table=take() + "s", numbers=(take(), take()), link=take(), other=take() + "s", place=take(),
        size=take(), grade=take(), limits=take() + "s", most=take(), since=take(), until=take(), stamp=take(),
        groups=(cls(), cls()), classes=((cls(), cls()), (cls(), cls())), relation=take(), partners=(cls(), cls()),
        seat=take(), noted=(take(), take()),
    )  # fmt: skip


def _made_up(rng: Random, *, num_words: int) -> list[str]:
    """Return different words of three syllables."""
    made: dict[str, None] = {}
    while len(made) < num_words:
        word = "".join(rng.choice("bcdfglmnprstvz") + rng.choice("aeiou") for _ in range(3))
        if word not in _TAKEN:
            made[word] = None
    return list(made)


_TAKEN = frozenset[str]().union(*(each.names for each in HELD_OUT))


def draw_ontology(rng: Random, *, held_out: bool) -> Ontology:
    """Draw an ontology for training, invented in 70 % of the cases, or one for evaluation."""
    if held_out:
        return rng.choice(HELD_OUT)
    return invented(rng) if rng.random() < 0.7 else rng.choice(TRAINING)
