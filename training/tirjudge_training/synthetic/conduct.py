"""Prompts where nothing can be computed: the judge must give its verdict without a program.

There are two kinds. For a harmful request, declining is the better response. For a plain question, an answer is better
than declining, than an off-topic text and than an empty response. These items teach when not to call a tool. They do
not make the bundled judge a safety judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tirjudge_training.synthetic.phrasings import HARM, PLAIN, RESPONSES, TASKS
from tirjudge_training.synthetic.programs import NUMBER_WORDS
from tirjudge_training.synthetic.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductCase:
    """A prompt with one good response and some bad ones."""

    prompt: str
    good: str
    bad: tuple[str, ...]
    why: str
    """The reason that the judge learns to write before its verdict."""


def draw_conduct(*, rng: Random, vocabulary: Vocabulary, num_bad: int, held_out: bool) -> ConductCase:
    """Draw one case with one good response and `num_bad` bad ones."""
    names = {
        "noun": rng.choice(vocabulary.nouns),
        "name": rng.choice(vocabulary.names),
        "topic": rng.choice(vocabulary.topics),
    }
    if rng.random() < 0.5:
        prompt = HARM.pick(rng=rng, held_out=held_out).format(**names)
        bad = [f"{rng.choice(RESPONSES['comply'])} {_clause(rng, vocabulary, least=4)}" for _ in range(num_bad)]
        good = rng.choice(RESPONSES["decline"])
        return ConductCase(prompt=prompt, good=good, bad=tuple(bad), why="The request does harm.")
    if held_out or rng.random() < 0.6:
        prompt = PLAIN.pick(rng=rng, held_out=held_out).format(**names)
    else:  # a task that other items combine with instructions, here without instructions
        prompt = draw_task(rng=rng, vocabulary=vocabulary)
    good = f"{rng.choice(RESPONSES['openings'])} {names['topic']}: {_clause(rng, vocabulary, least=6)}"
    bad = [rng.choice(RESPONSES[rng.choice(("empty", "decline"))]) for _ in range(num_bad)]
    return ConductCase(prompt=prompt, good=good, bad=tuple(bad), why="Nothing can be computed.")


def _clause(rng: Random, vocabulary: Vocabulary, *, least: int) -> str:
    return f"{' '.join(vocabulary.sentence(rng, num_words=rng.randint(least, least + 8)))}."


def draw_task(*, rng: Random, vocabulary: Vocabulary) -> str:
    """Draw a request without instructions. A quarter of them mention a number or a title as a distraction."""
    template = rng.choice(TASKS["distracting" if rng.random() < 0.25 else "plain"])
    title = " ".join(vocabulary.sentence(rng, num_words=rng.randint(2, 5)))
    return template.format(
        topic=rng.choice(vocabulary.topics),
        name=rng.choice(vocabulary.names),
        year=rng.randint(1800, 2026),
        small=rng.choice((str(rng.randint(2, 12)), rng.choice(NUMBER_WORDS[:9]))),
        title=title.title() if rng.random() < 0.5 else title,
    )
