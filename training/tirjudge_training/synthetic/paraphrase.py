"""Replaces words of a sentence by synonyms, so that training has more wordings than the hand-written sentences."""

from __future__ import annotations

import re
from random import Random

_CLASSES: tuple[tuple[str, ...], ...] = (
    ("your answer", "your response", "your reply", "your text", "your output", "your message", "what you write"),
    ("the answer", "the response", "the reply", "the text", "the output", "the message"),
    ("must not", "should not", "may not", "must never", "should never", "cannot"),
    ("must", "should", "has to", "needs to", "ought to", "shall"),
    ("must be", "should be", "has to be", "needs to be", "shall be"),
    ("contain", "include", "have", "feature", "hold"),
    ("do not", "don't", "never", "please do not", "please don't", "you must not", "you should not", "you may not"),
    ("entire", "whole", "complete", "full"),
    ("make sure", "be sure", "see to it", "take care"),
    ("appear", "occur", "show up", "come up", "turn up", "be found"),
    ("appears", "occurs", "shows up", "comes up", "turns up"),
    ("finish", "end", "close", "conclude", "wrap up"),
    ("start", "begin", "open"),
    ("are not allowed", "are forbidden", "are prohibited", "are banned", "are not permitted", "are off limits"),
    ("is forbidden", "is prohibited", "is not allowed", "is banned", "is not permitted"),
    ("avoid", "stay away from", "steer clear of", "leave out", "keep away from"),
    ("use", "employ", "make use of"),
    ("mention", "name", "bring up", "refer to"),
    ("separated by", "divided by", "split by", "set apart by"),
    ("put", "place", "set"),
    ("add", "append", "attach", "put in"),
    ("at the end", "at the bottom", "at the close"),
    ("at the start", "at the beginning", "at the top"),
    ("different", "distinct", "separate"),
    ("all", "completely", "entirely"),
    ("only", "solely", "exclusively"),
    ("before answering", "before you answer", "prior to answering"),
    ("exactly", "precisely"),
    ("repeat", "restate", "copy"),
    ("without", "with no"),
    ("write", "compose", "produce", "give"),
)
_OPENINGS = tuple("please|also,|in addition,|note:|remember to|important:|and|one more thing:|kindly|next,".split("|"))
_IMPERATIVES = re.compile(
    r"(?:write|use|put|give|add|include|answer|keep|start|end|begin|finish|avoid|mention|repeat|highlight|do|make|ensure|let|have|respond|wrap)\b",
    re.IGNORECASE,
)


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})\b(?!\w)", re.IGNORECASE)


_PATTERNS = tuple((_pattern(words), words) for words in _CLASSES)


def paraphrase(sentence: str, *, rng: Random) -> str:
    """Return the sentence with a few phrases replaced by synonyms. It may be unchanged; {placeholders} are kept."""
    for pattern, words in rng.sample(_PATTERNS, len(_PATTERNS)):
        if rng.random() < 0.5 and (match := pattern.search(sentence)) is not None and not _after_to(sentence, match):
            other = rng.choice(words)
            if match[0][:1].isupper():
                other = other[:1].upper() + other[1:]
            sentence = sentence[: match.start()] + other + sentence[match.end() :]
    if rng.random() < 0.2 and (begins := _IMPERATIVES.match(sentence)) is not None:
        opening = rng.choice(_OPENINGS)
        if not (opening == "remember to" and begins[0].lower() in ("do", "let")):
            sentence = f"{opening[:1].upper()}{opening[1:]} {sentence[:1].lower()}{sentence[1:]}"
    return sentence


def _after_to(sentence: str, match: re.Match[str]) -> bool:
    """Whether replacing the match would break the grammar, as in 'has to making use of' or 'has must'."""
    before = sentence[: match.start()].lower()
    return before.endswith((" not to ", "-", "{")) or (
        match[0].lower() in ("must", "should") and "not" in sentence[match.end() :][:5]
    )
