"""Words, sentences and languages as IFEval's rules define them.

The English Punkt model splits sentences, and the Treebank rules split words in capitals, as in the published figures.
Both are part of installed packages; nothing is downloaded. Language detection uses a fixed seed, so the result for a
text is always the same.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

_WORD = re.compile(r"\w+")


def count_words(text: str) -> int:
    """Count runs of letters, digits and underscores."""
    return len(_WORD.findall(text))


def count_sentences(text: str) -> int:
    """Count the sentences of an English text, as nltk's Punkt model splits them."""
    return len(_sentence_splitter().tokenize(text))


def count_capital_words(text: str) -> int:
    """Count words with at least one uppercase letter and no lowercase letter."""
    words = _word_splitter()
    return sum(word.isupper() for sentence in _sentence_splitter().tokenize(text) for word in words.tokenize(sentence))


@lru_cache(maxsize=1024)
def is_in_language(text: str, language: str) -> bool:
    """Whether the detected language of a text is `language` (an ISO 639-1 code).

    True for texts without a detectable language, such as digits only.
    """
    from langdetect.lang_detect_exception import LangDetectException

    detector = _language_detector().create()
    detector.append(text)
    try:
        return detector.detect() == language
    except LangDetectException:
        return True


@cache
def _sentence_splitter() -> Any:
    from punkt import tokenizer_for

    return tokenizer_for("english")


@cache
def _word_splitter() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()


@cache
def _language_detector() -> Any:
    """Return a factory with a seed. The global factory of the package has none."""
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory
