"""Generates a response with given features: number of sentences, words to include, case, ending and more.

Each instruction sets features of a `Draft`. Two instructions that set different values of one feature raise `Conflict`,
and the caller draws other instructions. `write` cannot always generate a text with exactly these features, because features
can interfere: a postscript adds a sentence. The caller must check the text against the instructions.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tirjudge_training.synthetic.vocabulary import Vocabulary


class Conflict(Exception):
    """Two instructions set different values of the same feature."""


class Draft:
    """Features of a text to generate: name -> value. Features that are not set are random."""

    def __init__(self) -> None:
        self.features: dict[str, Any] = {}
        self.inserted: list[str] = []
        """Words or marks that the text must contain, one entry per occurrence."""
        self.avoided: set[str] = set()
        """Lower-case words or single letters that randomly generated text must not contain."""

    def ask(self, feature: str, value: Any) -> None:
        """Set one feature.

        Raises:
            Conflict: the feature already has a different value.
        """
        if self.features.setdefault(feature, value) != value:
            raise Conflict(feature)

    def wanted(self, feature: str) -> Any:
        """Return the value of a feature; None if it is not set."""
        return self.features.get(feature)

    def insert(self, word: str, *, times: int) -> None:
        """Require exactly `times` occurrences of `word`.

        Raises:
            Conflict: the word must be avoided, or it is part of another inserted word.
        """
        if word.lower() in self.avoided:
            raise Conflict(word)
        self.avoid(word)
        self.inserted += [word] * times

    def avoid_letter(self, letter: str) -> None:
        """Keep the letter out of all randomly generated words."""
        self.avoided.add(letter)

    def avoid(self, word: str) -> None:
        """Keep `word` out of randomly generated text.

        Raises:
            Conflict: an inserted word contains it.
        """
        if any(word.lower() in other.lower() for other in self.inserted):
            raise Conflict(word)
        self.avoided.add(word.lower())


def write(draft: Draft, *, rng: Random, vocabulary: Vocabulary) -> str:
    """Generate a text with the features of the draft.

    Raises:
        Conflict: the text that was generated cannot have all features of the draft.
    """
    ask = draft.wanted
    if ask("json"):
        return _write_json(draft, rng=rng, vocabulary=vocabulary)
    sentences = _sentences(draft, rng=rng, vocabulary=vocabulary)
    words_wanted = ask("words")
    text = _assemble(draft, sentences, rng=Random(rng.random()), vocabulary=vocabulary)
    if words_wanted is not None:
        _change_word_count(sentences, words_wanted - len(text.split()), rng=rng, vocabulary=vocabulary, draft=draft)
        text = _assemble(draft, sentences, rng=Random(rng.random()), vocabulary=vocabulary)
    if ask("characters") is not None:
        text = _fit_characters(text, ask("characters"))
    return text


def _sentences(draft: Draft, *, rng: Random, vocabulary: Vocabulary) -> list[list[str]]:
    """Return the body as one list of words per sentence, with the required words inserted."""
    ask = draft.wanted
    num_sentences = ask("sentences")
    if num_sentences is None:
        usual = rng.randint(2, 6) if ask("words") is None else max(1, ask("words") // rng.randint(7, 12))
        num_sentences = max(usual, ask("paragraphs") or 1)
    sentences = [_clause(draft, rng=rng, vocabulary=vocabulary) for _ in range(num_sentences)]
    for word in draft.inserted:
        where = rng.choice(sentences) if sentences else []
        where.insert(rng.randint(1, max(1, len(where) - 1)), word)
    return sentences


def _clause(draft: Draft, *, rng: Random, vocabulary: Vocabulary) -> list[str]:
    longest = draft.wanted("sentence_words")
    num_words = rng.randint(5, 12) if longest is None else longest
    return _plain_words(draft, num_words, rng=rng, vocabulary=vocabulary)


def _plain_words(draft: Draft, num_words: int, *, rng: Random, vocabulary: Vocabulary) -> list[str]:
    """Draw random words, without those that the draft avoids."""
    letters = {word for word in draft.avoided if len(word) == 1}
    avoided = {part for word in draft.avoided for part in word.split()}
    words = vocabulary.sentence(rng, num_words=num_words)
    for _ in range(30):
        bad = [i for i, word in enumerate(words) if word in avoided or any(letter in word for letter in letters)]
        if not bad:
            break
        for i in bad:
            words[i] = rng.choice((*vocabulary.nouns, "it", "is", "so", "we", "to", "an"))
    return words


def _change_word_count(
    sentences: list[list[str]], more: int, *, rng: Random, vocabulary: Vocabulary, draft: Draft
) -> None:
    """Add `more` words to the body. If it is negative, remove words, but none that the draft requires."""
    kept = {part for word in draft.inserted for part in word.split()} | set(draft.inserted)
    if more > 0:
        words = _plain_words(draft, more, rng=rng, vocabulary=vocabulary)
        share = -(-more // len(sentences))
        for i, sentence in enumerate(sentences):
            sentence += words[i * share : (i + 1) * share]
    for _ in range(-more):
        loose = [(s, i) for s in sentences if len(s) > 1 for i, word in enumerate(s) if word not in kept]
        if not loose:
            raise Conflict("words")
        sentence, i = rng.choice(loose)
        del sentence[i]


def _assemble(draft: Draft, sentences: list[list[str]], *, rng: Random, vocabulary: Vocabulary) -> str:
    """Return the punctuated body with its lists, separator, opening, ending and other surrounding features."""
    ask = draft.wanted
    spoken = [_punctuate(draft, words, rng=rng) for words in sentences]
    num_paragraphs = min(ask("paragraphs") or rng.randint(1, max(1, min(3, len(spoken)))), max(1, len(spoken)))
    if ask("lines") is not None or ask("line_start") is not None:
        num_paragraphs = 1
    cuts = sorted(rng.sample(range(1, len(spoken)), num_paragraphs - 1)) if len(spoken) > 1 else []
    groups = [spoken[a:b] for a, b in zip([0, *cuts], [*cuts, len(spoken)], strict=True)]
    if ask("lines") is not None:
        text = "\n".join(_in_lines(" ".join(spoken), ask("lines")))
    else:
        text = "\n\n".join(" ".join(group) for group in groups)
    text = _add_lists(text, draft, rng=rng, vocabulary=vocabulary)
    if ask("separator") is not None:
        text = f"{text}\n\n{ask('separator')}\n\n{_punctuate(draft, _clause(draft, rng=rng, vocabulary=vocabulary), rng=rng)}"
    return _apply_surface_features(text, draft)


def _in_lines(text: str, num_lines: int) -> list[str]:
    words = text.split()
    if len(words) < num_lines:
        raise Conflict("lines")
    size, extra = divmod(len(words), num_lines)
    lines, start = [], 0
    for i in range(num_lines):
        end = start + size + (i < extra)
        lines.append(" ".join(words[start:end]))
        start = end
    return lines


def _punctuate(draft: Draft, words: list[str], *, rng: Random) -> str:
    commas = draft.wanted("commas")
    words = list(words)
    if commas is not False and len(words) > 4 and rng.random() < (0.9 if commas else 0.35):
        words[rng.randint(1, len(words) - 3)] += ","
    sentence = " ".join(words)
    return sentence[:1].upper() + sentence[1:] + "."


def _add_lists(text: str, draft: Draft, *, rng: Random, vocabulary: Vocabulary) -> str:
    """Append bullets, numbered items and sections, each on a separate line below the body."""
    ask = draft.wanted
    lines: list[str] = []

    def item() -> str:
        return " ".join(_plain_words(draft, rng.randint(2, 4), rng=rng, vocabulary=vocabulary))

    mark = rng.choice("*-")
    lines += [f"{mark} {item()}" for _ in range(ask("bullets") or 0)]
    lines += [f"{i + 1}. {item()}" for i in range(ask("numbered") or 0)]
    if ask("sections") is not None:
        name, count = ask("sections")
        lines += [line for i in range(count) for line in (f"{name} {i + 1}", item())]
    return "\n".join([text, *lines])


def _apply_surface_features(text: str, draft: Draft) -> str:
    """Apply the letter case first, then add the parts that must appear literally."""
    ask = draft.wanted
    if ask("question") is True:
        text = text.rstrip(".") + "?"
    text = text + "?" * (ask("question_marks") or 0) + "!" * (ask("exclamation_marks") or 0)
    if ask("case") == "upper":
        text = text.upper()
    elif ask("case") == "lower":
        text = text.lower()
    if ask("line_start") is not None:
        text = "\n".join(f"{ask('line_start')} {line}" for line in text.splitlines() if line.strip())
    if ask("title") is True:
        if not text.strip():
            raise Conflict("title")
        text = f"<<{text.split(maxsplit=1)[0]}>>\n{text}"
    if ask("start") is not None:
        text = f"{ask('start')} {text}"
    if ask("postscript") is not None:
        text = f"{text}\n{ask('postscript')} see above"
    if ask("end") is not None:
        text = f"{text} {ask('end')}"
    if ask("only") is not None:
        text = ask("only")
    if ask("quoted") is True:
        text = f'"{text}"'
    return text


def _fit_characters(text: str, num_characters: int) -> str:
    """Return exactly `num_characters` characters: the text is cut at the end, or filled with short words."""
    while len(text) < num_characters:
        text += " so it is"
    return text[:num_characters].rstrip().ljust(num_characters, ".")


def _write_json(draft: Draft, *, rng: Random, vocabulary: Vocabulary) -> str:
    words = _plain_words(draft, rng.randint(6, 14), rng=rng, vocabulary=vocabulary) + draft.inserted
    rng.shuffle(words)
    half = len(words) // 2
    fields = {"title": " ".join(words[:half]), "text": " ".join(words[half:])}
    text = json.dumps(fields, indent=rng.choice([None, 1]))
    if draft.wanted("case") == "upper":
        return text.upper()
    return text
