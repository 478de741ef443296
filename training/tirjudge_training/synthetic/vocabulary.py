"""Words for synthetic prompts and responses, in two sets without a common content word: for training and for
evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Content words by part of speech, topics of tasks, and names of people."""

    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    topics: tuple[str, ...]
    names: tuple[str, ...]

    def keyword(self, rng: Random) -> str:
        """Draw a keyword for an instruction: one word, in 15 % of the cases two."""
        noun = rng.choice(self.nouns)
        return f"{rng.choice(self.adjectives)} {noun}" if rng.random() < 0.15 else noun

    def sentence(self, rng: Random, *, num_words: int) -> list[str]:
        """Draw a clause of exactly `num_words` words, without punctuation."""
        words: list[str] = []
        while len(words) < num_words:
            words += [
                rng.choice(_ARTICLES),
                rng.choice(self.adjectives),
                rng.choice(self.nouns),
                rng.choice(self.verbs),
            ]
            words += [rng.choice(_PREPOSITIONS), rng.choice(_ARTICLES), rng.choice(self.nouns), rng.choice(_JOINS)]
        return words[:num_words]


_ARTICLES = ("the", "a", "this", "every", "our", "some")
_PREPOSITIONS = ("near", "with", "under", "for", "beyond", "across", "from", "into")
_JOINS = ("and", "while", "because", "so", "but", "when")

TRAINING = Vocabulary(
    adjectives=tuple(
        "quiet bright small green early warm heavy gentle ancient modern simple narrow golden fresh steady clever hidden"
        " famous wooden silver empty lively patient curious wild broad honest rapid distant soft local public clean strong"
        " careful global digital hot cold sweet dark young tall deep useful common daily rich proud busy calm".split()
    ),
    nouns=tuple(
        "river garden market bridge engine letter window mountain teacher forest kitchen station island doctor village"
        " library harbor museum planet battery camera castle desert dragon farmer festival flower guitar hospital journey"
        " kingdom lantern machine memory mirror morning network orchard painter pocket quarter rocket school season shadow"
        " signal soldier spring stone storm story summer sunset table temple ticket tower train travel valley violin water"
        " weather winter worker writer city coffee energy family freedom friend future health history language lesson money"
        " music nature paper peace people plan power project question reader road science service space sport student"
        " team technology time trade tree value voice war wind word world bread apple cheese lemon honey bicycle boat"
        " budget climate culture data design economy education football internet leader market medicine policy research"
        " robot safety software solution startup theory tradition vaccine virus wallet yoga zebra quiz jazz fox box"
        " kayak jacket judge juice puzzle pizza queen quest vase velvet wax oxygen taxi".split()
    ),
    verbs=tuple(
        "carries follows holds covers finds shows brings keeps changes meets leaves opens builds watches crosses guides"
        " teaches supports joins turns reaches serves paints moves explains inspires protects feeds connects measures".split()
    ),
    topics=tuple(
        "the sea|a lost dog|city gardens|renewable energy|the history of tea|space travel|learning a language|a rainy day|"
        "healthy breakfasts|remote work|an old lighthouse|the water cycle|board games|electric cars|the Roman empire|"
        "a birthday party|mountain hiking|online privacy|the first computers|a jazz concert|baking bread|solar panels|"
        "the life of a beekeeper|good sleep|a school trip|public libraries|the moon landing|saving money|wild birds|"
        "street food|the internet|a chess match|volcanoes|time management|an island holiday|the human heart|coffee|"
        "modern art|a train journey|climate change|how vaccines work|a small bakery|football training|the stock market|"
        "a new phone|ancient Egypt|friendship|home repairs|the northern lights|a job interview".split("|")
    ),
    names=tuple("Anna Ben Carla David Emma Felix Grace Henry Ines Jonas Kate Leo Mia Noah Olga Paul Rosa Sam".split()),
)

HELD_OUT = Vocabulary(
    adjectives=tuple(
        "eager faint jolly noble plain rough smooth tiny vivid weary brave crisp dusty fancy giant humble loyal mellow"
        " polite sturdy".split()
    ),
    nouns=tuple(
        "anchor basket candle donkey eagle feather glacier hammer insect jungle kettle ladder meadow needle ocean parrot"
        " quilt rabbit saddle thunder umbrella volcano whistle yacht zipper bakery compass diamond elephant fountain"
        " galaxy horizon jewel lizard magnet notebook oyster pepper ribbon sandwich telescope uniform vineyard wagon"
        " algorithm biology currency democracy election fashion gravity housing industry justice logistics nutrition"
        " patience recipe strategy tourism violence wisdom xylophone".split()
    ),
    verbs=tuple(
        "lifts pushes greets borrows repairs ignores collects delivers observes replaces gathers answers".split()
    ),
    topics=tuple(
        "a stolen bicycle|deep sea fish|the city of Lisbon|raising chickens|urban planning|a talking clock|glass making|"
        "marathon training|the silk road|honest advertising|a haunted hotel|vegetarian cooking|desert plants|"
        "the printing press|sailing alone|teenage budgets|night trains|a broken promise|coral reefs|public speaking".split(
            "|"
        )
    ),
    names=tuple("Zara Otto Yusuf Vera Tomas Sofia Ravi Petra".split()),
)
