"""Similarity of two texts, from 0 to 1, by those metrics of OpenAI's `text_similarity` grader that need no model.

`bleu` is sacreBLEU's BLEU of a sentence, with its default tokens and exponential smoothing. Words of other metrics are runs
of letters, digits and underscores, in lower case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

MAX_CHARS = 50_000
"""Maximum length of a text. The computing time grows with the product of both lengths."""

_WORD = re.compile(r"\w+")


def similarity(text: str, reference: str, *, metric: str) -> float:
    """Return the similarity of two texts; 1.0 for identical texts.

    Args:
        text: The text.
        reference: The text to compare with.
        metric: A name in `METRICS`.
    """
    return METRICS[metric](text, reference)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _rouge_n(text: str, reference: str, *, n: int) -> float:
    """F1 over the n-grams of both texts."""
    found, wanted = _ngrams(_words(text), n), _ngrams(_words(reference), n)
    return _f1((found & wanted).total(), num_found=found.total(), num_wanted=wanted.total())


def _rouge_l(text: str, reference: str) -> float:
    """F1 over the longest common subsequence of words."""
    found, wanted = _words(text), _words(reference)
    return _f1(LCSseq.similarity(found, wanted), num_found=len(found), num_wanted=len(wanted))


def _gleu(text: str, reference: str) -> float:
    """The smaller of precision and recall over all n-grams of one to four words (Wu et al. 2016, section 4.3)."""
    found = sum((_ngrams(_words(text), n) for n in range(1, 5)), Counter())
    wanted = sum((_ngrams(_words(reference), n) for n in range(1, 5)), Counter())
    largest = max(found.total(), wanted.total())
    return (found & wanted).total() / largest if largest else 0.0


def _bleu(text: str, reference: str) -> float:
    """Sentence BLEU (Post 2018). Orders of n-grams that the text is too short for are left out."""
    from sacrebleu import sentence_bleu  # slow to import

    return min(1.0, sentence_bleu(text, [reference], use_effective_order=True).score / 100.0)


def _f1(num_common: int, *, num_found: int, num_wanted: int) -> float:
    return 2 * num_common / (num_found + num_wanted) if num_found + num_wanted else 0.0


METRICS: Mapping[str, Callable[[str, str], float]] = {
    # Indel similarity: twice the length of the longest common subsequence, divided by the sum of both lengths.
    "fuzzy_match": lambda text, reference: fuzz.ratio(text, reference) / 100.0,
    "bleu": _bleu,
    "gleu": _gleu,
    "rouge_l": _rouge_l,
    **{f"rouge_{n}": partial(_rouge_n, n=n) for n in range(1, 6)},
}

REFUSED: Mapping[str, str] = {
    "meteor": "it needs the dictionary WordNet, which this server does not have",
    "cosine": "it needs a model of embeddings, which this server does not have",
}
"""OpenAI's other metrics -> why they are refused."""
