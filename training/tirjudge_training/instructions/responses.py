"""Responses that follow or break given checks: edits of a plain text until exactly the wanted checks hold."""

from __future__ import annotations

import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from tirjudge_training.instructions.helpers import SOURCES, TOOL_SOURCES
from tirjudge_training.instructions.notation import LENGTHS, SYMBOLS, Check

_OPS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}

MAX_ROUNDS = 12
"""Edits of one response, at most this many passes over its checks."""


@cache
def _namespace() -> dict[str, object]:
    """Return the functions of programs that call no tools. Only for expressions of this package."""
    namespace: dict[str, object] = {"re": re, "json": json, "math": math}
    sources = (source for name, source in SOURCES.items() if name not in TOOL_SOURCES)
    exec("\n".join(sources), namespace)  # noqa: S102 (own source)
    return namespace


def holds(expression: str, response: str, *, prompt: str) -> bool:
    """Return whether a response passes a check of this package. Never call it with code that a model wrote.

    A check for an unknown language cannot be tested, and no response passes it.
    """
    names = _namespace()
    names["prompt"] = prompt
    names["checks"] = checks = eval(f"lambda r: {expression}", names)  # noqa: S307 (own expression)
    try:
        return bool(checks(response))
    except LookupError:
        return False


def response_to(
    checks: Sequence[Check], wanted: Sequence[bool], *, prompt: str, sentences: Sequence[str], rng: Random
) -> str | None:
    """Return a text for which each check is as wanted; None if none is found.

    Args:
        checks: checks with literal values.
        wanted: whether each check is to hold.
        prompt: prompt of the checks.
        sentences: plain sentences that the text is made of.
        rng: source of randomness.
    """
    text = " ".join(rng.sample(sentences, rng.randint(3, 6)))
    for _ in range(MAX_ROUNDS):
        wrong = [
            (check, want)
            for check, want in zip(checks, wanted, strict=True)
            if holds(check.expression, text, prompt=prompt) is not want
        ]
        if not wrong:
            return text
        check, want = rng.choice(wrong)
        text = edited(text, check, want=want, prompt=prompt, sentences=sentences, rng=rng)
    return None


def edited(text: str, check: Check, *, want: bool, prompt: str, sentences: Sequence[str], rng: Random) -> str:
    """Return the text after one edit towards the wanted result of a check."""
    name = check.name
    if check.op is not None:
        target = _target(check, want=want, rng=rng)
        if name in LENGTHS:
            return _with_lengths(text, name, target, sentences=sentences, rng=rng)
        return _with_count(text, check, target, sentences=sentences, rng=rng)
    edit = _EDITS[name]
    return edit(text, check, want, prompt, rng)


def _target(check: Check, *, want: bool, rng: Random) -> int:
    """Draw a count for which the comparison is as wanted, close to its limits."""
    numbers = [int(number) for number in check.numbers]
    assert check.op is not None
    op = check.op

    def fits(count: int) -> bool:
        if op == "..":
            return (numbers[0] <= count <= numbers[1]) is want
        return _OPS[op](count, numbers[0]) is want

    near = sorted({max(0, n + d) for n in numbers for d in (*range(-3, 4), -n // 5, n // 5, -n // 2, n // 2)})
    return rng.choice([count for count in near if fits(count)] or [numbers[0]])


def _pieces(count: int, sentences: Sequence[str], rng: Random) -> list[str]:
    return [rng.choice(sentences) for _ in range(count)]


def _words(count: int, sentences: Sequence[str], rng: Random) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        words += re.findall(r"[A-Za-z]+", rng.choice(sentences))
    return words[:count]


def _with_count(text: str, check: Check, target: int, *, sentences: Sequence[str], rng: Random) -> str:
    name = check.name
    if name == "words":
        return _capitalized(" ".join(_words(target, sentences, rng))) + "."
    if name == "characters":
        long = " ".join([text, *_pieces(1 + target // 40, sentences, rng)])
        return (
            long[:target].ljust(target, "a").replace(" ", "a")
            if target < 2
            else long[: target - 1].rstrip().ljust(target - 1, "o") + "."
        )
    if name == "sentences":
        return " ".join(_short(one) for one in _pieces(target, sentences, rng))
    if name == "paragraphs":
        return "\n\n".join(_pieces(target, sentences, rng))
    if name == "stars":
        return "\n***\n".join(_pieces(target, sentences, rng))
    if name == "lines":
        return "\n".join(_short(one) for one in _pieces(target, sentences, rng))
    if name == "json_items":
        return _json([_short(one) for one in _pieces(target, sentences, rng)])
    if name in ("columns", "tablerows"):
        rest = [line for line in text.splitlines() if "|" not in line]
        num_columns = target if name == "columns" else _counted(text, Check(name="columns")) or 2
        num_rows = target if name == "tablerows" else _counted(text, Check(name="tablerows")) or 2
        cells = (" name |", "---|", *(f" {row} |" for row in range(num_rows)))
        return "\n".join([*rest, *(f"|{cell * max(1, num_columns)}" for cell in cells)])
    if name == "separated":
        found = re.findall(r"[A-Za-z]+", text)
        found = found if len(found) >= target else _words(target, sentences, rng)
        at = [i * len(found) // max(1, target) for i in range(target + 1)]
        parts = [" ".join(found[low:high]) for low, high in itertools.pairwise(at)]
        return f"{check.texts[0].strip()} ".join(parts) or "-"
    if name == "marked":
        return "\n".join(f"{check.texts[0].strip()} {_short(part)}" for part in _pieces(target, sentences, rng)) or text
    if name == "own_lines":
        rest = [line for line in text.splitlines() if line.strip().lower() != check.texts[0].strip().lower()]
        parts = _pieces(target, sentences, rng)
        return "\n".join(["\n".join(rest), *(f"{check.texts[0]}\n{part}" for part in parts)])
    if name == "first_sentence_words":
        found = re.findall(r"\w+", text)
        found = found if len(found) > target else _words(target + 4, sentences, rng)
        return f"{_capitalized(' '.join(found[:target]))}. {_capitalized(' '.join(found[target:]))}."
    if name == "last_line_words":
        return "\n".join([text, " ".join(_words(max(1, target), sentences, rng))])
    if name == "last_sentence_words":
        return f"{text.rstrip('.!? ')}. {_capitalized(' '.join(_words(max(1, target), sentences, rng)))}."
    if name == "longest_word":
        words = [word[: max(1, target)] for word in text.split(" ")]
        words[rng.randrange(len(words))] = "".join(rng.choice("aeioustrnl") for _ in range(max(1, target)))
        return " ".join(words)
    if name in ("first_line_words", "first_line_characters"):
        first = " ".join(_words(max(1, target), sentences, rng))
        first = first if name == "first_line_words" else first[:target].strip().ljust(target, "o")
        return "\n".join([first, *(text.splitlines()[1:] or [text])])
    current = _counted(text, check)
    if current > target:
        return _removed(text, check, current - target)
    return _added(text, check, target - current, sentences=sentences, rng=rng)


def _counted(text: str, check: Check) -> int:
    expression = Check(name=check.name, texts=check.texts, numbers=("0",), op="==").expression
    return int(eval(expression.removesuffix(" == 0"), {**_namespace(), "r": text}))  # noqa: S307 (own expression)


def _removed(text: str, check: Check, times: int) -> str:
    name = check.name
    patterns = {
        "bullets": r"(?m)^\s*[-*•] ?",
        "numbered": r"(?m)^\s*\d+[.)]\s",
        "placeholders": r"\[.*?\]",
        "highlights": r"\*+[^\n*]*\*+",
        "bold": r"\*\*[^*\n]+\*\*|__[^_\n]+__",
        "headings": r"(?m)^\s{0,3}#{1,6}\s",
        "hashtags": r"(?<![\w#])#\w+",
        "capitals": r"\b[A-Z][A-Z'-]*\b",
        "emojis": "[\u2600-\u27bf\u2b50\u2b55\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]",
        "links": r"https?://\S+|www\.\S+",
        "numbers": r"\d+(?:[.,:]\d+)*",
        "codeblocks": r"(?m)^\s*```\w*[\s\S]*?^\s*```",
        "parentheses": r"\([^()]*\)",
        "punctuation": r"[^\w\s]",
        "quotes": r"[\"'‘’“”„«»]",
        "dashes": r"[–—]|(?<=\s)-+(?=\s)|--+",
        "lettered": r"(?m)^[ \t]*\(?[A-Za-z][.)]\s",
        "roman": r"(?m)^[ \t]*\(?[IVXivx]+[.)]\s",
        "italics": r"\*[^*\n]+\*|_[^_\n]+_",
        "blockquotes": r"(?m)^ {0,3}>",
        "inline_code": r"`[^`\n]+`",
        "percents": r"\d+(?:\.\d+)? ?(?:%|percent)",
        "amounts": r"[$€£]\d+|\d+ (?:dollars|euros)",
        "clock_times": r"\d+:\d\d|\d+ [ap]m|noon",
    }
    if name in patterns:
        pattern, flags = patterns[name], 0
    elif name in ("beginning", "ending"):
        part = re.escape(check.texts[0])
        pattern, flags = rf"\b{part}\w*" if name == "beginning" else rf"\w*{part}\b", re.IGNORECASE
    elif name == "sections":
        pattern, flags = re.escape(check.texts[0]) + r"\s?\d+", re.IGNORECASE
    else:
        pattern, flags = re.escape(SYMBOLS.get(name) or check.texts[0]), re.IGNORECASE
    return re.sub(pattern, "", text, count=times, flags=flags)


def _added(text: str, check: Check, times: int, *, sentences: Sequence[str], rng: Random) -> str:
    name = check.name
    inline = {
        "placeholders": ("[name]", "[address]", "[date]"),
        "highlights": ("*this part*", "*one note*"),
        "bold": ("**bold part**",),
        "hashtags": ("#news", "#fun", "#today"),
        "capitals": ("NOW", "NEVER", "ALWAYS"),
        "emojis": ("😀", "🎉", "🌍"),
        "links": ("https://example.org/page",),
        "numbers": ("7", "42", "365"),
        "parentheses": ("(indeed)", "(see below)"),
        "punctuation": ("now,", "then;"),
        "quotes": ('so-called"', 'almost"'),
        "dashes": ("–", "—"),
        "italics": ("*this part*", "_one note_"),
        "inline_code": ("`value`", "`run`"),
        "percents": ("40%", "12.5 percent"),
        "amounts": ("$5", "20 euros", "£300"),
        "clock_times": ("14:30", "9 am", "noon"),
    }
    on_lines = {
        "bullets": "- {}",
        "numbered": "{n}. {}",
        "lettered": "{l}) {}",
        "roman": "{r}. {}",
        "headings": "# {}",
        "blockquotes": "\n> {}",
        "codeblocks": "```\nprint(1)\n```",
    }
    if name in on_lines:
        new = [
            on_lines[name]
            .replace("{n}", str(i + 1))
            .replace("{l}", chr(ord("a") + i % 26))
            .replace("{r}", _ROMAN[i % len(_ROMAN)])
            .replace("{}", _short(rng.choice(sentences)))
            for i in range(times)
        ]
        return "\n".join([text, *new])
    if name == "sections":
        start = _counted(text, check)
        return "\n".join([text, *(f"{check.texts[0]} {start + i + 1}\n{rng.choice(sentences)}" for i in range(times))])
    words = text.split(" ")
    for i in range(times):
        if name in inline:
            words.insert(rng.randint(1, len(words)), inline[name][i % len(inline[name])])
        elif name in SYMBOLS or name == "symbol":
            at = rng.randrange(len(words))
            words[at] += SYMBOLS.get(name) or check.texts[0]
        else:
            words.insert(rng.randint(1, len(words)), check.texts[0])
    return " ".join(words)


def _with_lengths(text: str, name: str, target: int, *, sentences: Sequence[str], rng: Random) -> str:
    target = max(1, target)
    if name == "per_paragraph":
        return "\n\n".join(" ".join(_short(one) for one in _pieces(target, sentences, rng)) for _ in range(3))
    if name == "paragraph_words":
        return "\n\n".join(_capitalized(" ".join(_words(target, sentences, rng))) + "." for _ in range(3))
    if name == "paragraph_lines":
        return "\n\n".join("\n".join(_short(one) for one in _pieces(target, sentences, rng)) for _ in range(2))
    if name == "bullet_sentences":
        return "\n".join("- " + " ".join(_short(one) for one in _pieces(target, sentences, rng)) for _ in range(3))
    if name == "heading_words":
        return "\n\n".join(f"# {' '.join(_words(target, sentences, rng))}\n\n{rng.choice(sentences)}" for _ in range(2))
    if name == "word_letters":
        return " ".join("".join(rng.choice("aeioustrnl") for _ in range(target)) for _ in range(9)) + "."
    if name == "line_characters":
        return "\n".join(
            (" ".join(_pieces(1 + target // 20, sentences, rng))[:target]).strip().ljust(target, "o") for _ in range(3)
        )
    if name == "per_list":
        lists = ["\n".join(f"- {_short(one)}" for one in _pieces(target, sentences, rng)) for _ in range(2)]
        return "\n\n".join(f"# Part {number}\n{items}" for number, items in enumerate(lists, 1))
    several = [" ".join(_words(target, sentences, rng)) for _ in range(4)]
    if name == "line_words":
        return "\n".join(several)
    if name == "bullet_words":
        return "\n".join(f"- {one}" for one in several)
    return " ".join(f"{_capitalized(one)}." for one in several)


_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")


def _short(text: str) -> str:
    """Return one plain sentence."""
    return f"{_capitalized(re.sub(r'[^A-Za-z, ]+', ' ', text).strip()[:60].strip())}."


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


# Checks without a comparison: (text, check, want, prompt, rng) -> text ----------------------------------------------------

_Edit = Callable[[str, Check, bool, str, Random], str]


def _either(good: Callable[[str], str], bad: Callable[[str], str]) -> _Edit:
    return lambda text, check, want, prompt, rng: (good if want else bad)(text)


def _include(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    words = text.split(" ")
    if want:
        for word in check.texts:
            words.insert(rng.randint(1, len(words)), word)
        return " ".join(words)
    return re.sub(re.escape(rng.choice(check.texts)), "", text, flags=re.IGNORECASE)


def _include_any(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if want:
        return f"{text} {rng.choice(check.texts)}."
    for word in check.texts:
        text = re.sub(re.escape(word), "", text, flags=re.IGNORECASE)
    return text


def _forbid(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return _include_any(text, check, not want, prompt, rng)


def _start(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return f"{check.texts[0]} {text}" if want else f"Well then, {text}"


def _end(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if want:
        return f"{text.rstrip(' .')}. {_capitalized(check.texts[0]) if check.name == 'end' else check.texts[0]}"
    return f"{text} And so on it goes"


def _first_sentence(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if want:
        return f"Here is {check.texts[0]} for you. {text}"
    first, _, rest = text.partition(" ")
    return f"So be it. {re.sub(re.escape(check.texts[0]), '', first + ' ' + rest, flags=re.IGNORECASE)}"


def _last_sentence(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return f"{text} It ends with {check.texts[0]}." if want else f"{text} So be it."


def _paragraph_first(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    number, word = int(check.numbers[0]), check.texts[0]
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    while len(parts) < number:
        parts.append("Another part follows here.")
    parts[number - 1] = f"{word if want else 'Perhaps'} {parts[number - 1]}"
    return "\n\n".join(parts)


def _on_lines(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 3:
        lines = [line for line in re.split(r"(?<=[.!?])\s+", text) if line.strip()]
    if not want:
        return "\n".join([*lines, "Well said by all of them, then"])
    affix = check.texts[0]
    if check.name == "line_start":
        return "\n".join(line if line.startswith(affix) else f"{affix} {line}".strip() for line in lines)
    return "\n".join(line if line.endswith(affix) else f"{line} {affix}" for line in lines)


def _in_order(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    for one in check.texts:
        text = re.sub(re.escape(one), "", text, flags=re.IGNORECASE)
    if want:
        return f"{text} {', then '.join(check.texts)}."
    return f"{text} {', but before it '.join(reversed(check.texts))}." if len(check.texts) > 1 else text


def _bold_text(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return " ".join([text, *(f"**{one}**" for one in check.texts)]) if want else text.replace("**", "")


def _own_line(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if want:
        return "\n".join([text, *(f"{one}\nThis part is short." for one in check.texts)])
    missing = rng.choice(check.texts)
    return re.sub(rf"(?im)^\W*{re.escape(missing.strip())}\W*$", "Another part", text)


def _line_first(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    number = int(check.numbers[0])
    lines = [line for line in text.splitlines() if line.strip()]
    while len(lines) < number:
        lines.append("Another line follows here.")
    lines[number - 1] = f"{check.texts[0] if want else 'Perhaps'} {lines[number - 1]}"
    return "\n".join(lines)


def _last_line(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    *lines, last = [line for line in text.splitlines() if line.strip()] or [""]
    return "\n".join([*(lines or [last]), f"{check.texts[0] if want else 'So'} it ends"])


def _in_parts(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    """Return the text with the words of a check in each of its parts, or with one part more, without them."""
    kind, _, place = check.name.partition("_")
    shape = {"start": "{} {}", "end": "{1} {0}"}.get(place, "Now {} is {}")
    if kind == "bullet" and not holds("bullets(r) > 0", text, prompt=prompt):
        text = "\n".join(f"- {part}" for part in re.split(r"(?<=[.!?])\s+", text))
    between = {"paragraph": "\n\n", "sentence": " "}.get(kind, "\n")
    parts = re.split({"\n\n": r"\n\s*\n", " ": r"(?<=[.!?])\s+"}.get(between, r"\n+"), text.strip())
    mark = "- " if kind == "bullet" else ""
    if not want:
        parts[rng.randrange(len(parts))] = f"{mark}Someone knew why."
        return between.join(parts)
    word = " ".join(check.texts)
    return between.join(f"{mark}{shape.format(word, part.removeprefix(mark))}" for part in parts)


def _alternate(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    num_lines = len([line for line in text.splitlines() if line.strip()])
    if num_lines < 2 or rng.random() < 0.2:
        num_lines = rng.choice((2, 4, 6))
    lines = [f"{check.texts[i % len(check.texts)]} part {i + 1} of this" for i in range(num_lines)]
    if not want:
        lines[-1] = f"{check.texts[len(lines) % len(check.texts)]} the last part"
    return "\n".join(lines)


def _exact(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    word = check.texts[0]
    if want:
        return f"{text} It is {' and '.join(check.texts)}."
    other = next((one for one in (word.lower(), word.upper(), _capitalized(word)) if one != word), "")
    return text.replace(word, other)


def _header(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    names = list(check.texts)
    if not want:
        names = [*names[1:], names[0]] if len(names) > 1 and rng.random() < 0.5 else [*names[:-1], "Other"]
    if "csv" in prompt.lower():
        return "\n".join([",".join(names), *(",".join(f"{row}" for _ in names) for row in (1, 2))])
    num_rows = _counted(text, Check(name="tablerows")) or 2
    rows = ["|".join(["", *(f" {row} " for _ in names), ""]) for row in range(num_rows)]
    rest = [line for line in text.splitlines() if "|" not in line]
    return "\n".join([*rest, f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *rows])


def _bullet_mark(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        lines = [part for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    items = [re.sub(r"^\s*[^\w\s|#]{1,3}\s+", "", line) for line in lines]
    mark = check.texts[0].strip() if want else rng.choice([mark for mark in "-*•+" if mark != check.texts[0].strip()])
    return "\n".join(f"{mark} {item}" for item in items)


def _tags(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    names = [one.strip("</> ") for one in check.texts]
    if want:
        return " ".join([text, *(f"<{name}>this part</{name}>" for name in names)])
    return re.sub(rf"</?{re.escape(rng.choice(names))}\b[^<>]*>", "", text)


def _date_format(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if not want:
        return re.sub(r"\d+\W\d+\W\d+", "14 March", text)
    day, month, year = rng.randint(10, 28), rng.randint(10, 12), rng.randint(2018, 2031)

    def digits(match: re.Match[str]) -> str:
        value = {"d": day, "m": month, "y": year}[match[0][0].lower()]
        return str(value)[-len(match[0]) :].rjust(len(match[0]), "0")

    return f"{text} It was on {re.sub('(?i)d+|m+|y+', digits, check.texts[0].strip())}."


def _not_sentence_start(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if not want:
        return f"{text} {_capitalized(rng.choice(check.texts))} had known it."
    starts = "|".join(map(re.escape, check.texts))
    return re.sub(rf"(?i)(^|(?<=[.!?])\s+)(?:{starts})(?=\W)", r"\1Perhaps", text)


def _sentence_end(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    parts = [part.rstrip(".!?… ") for part in re.split(r"(?<=[.!?…])\s+|\n+", text) if re.search(r"\w", part)]
    ends = [rng.choice(check.texts) for _ in parts]
    if not want:
        ends[rng.randrange(len(ends))] = rng.choice([mark for mark in ".!?" if mark not in check.texts])
    return " ".join(part + end for part, end in zip(parts, ends, strict=True))


def _paragraph_edge(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    """Return the text in paragraphs that all start or end with a text, or all but one."""
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) < 2:
        parts = [part for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]
    word, starts = rng.choice(check.texts), check.name == "paragraph_start"
    parts = [f"{word} {part}" if starts else f"{part.rstrip('.!? ')} {word}" for part in parts]
    if not want:
        parts[rng.randrange(len(parts))] = "Someone knew why it was so"
    return "\n\n".join(parts)


def _one_paragraph(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    """Return the text with words in its first or last paragraph, or without them there."""
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(parts) < 2:
        parts = [*parts, "Another part follows here."]
    at = 0 if check.name == "first_paragraph" else -1
    if want:
        parts[at] += f" It is {' and '.join(check.texts)}."
    else:
        parts.insert(0 if at == 0 else len(parts), "Someone knew why.")
    return "\n\n".join(parts)


def _json_value(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    key, value = check.texts
    return _json({key: value} if want else rng.choice(({key: f"{value}s"}, {f"{key}s": value})))


def _enclosed(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    first, last = check.texts
    return (
        f"{first} {text.strip()} {last}" if want else rng.choice((f"{first} {text.strip()}", f"{text} {last} So be it"))
    )


_STYLED = {
    "snake_case": "total_price", "camelCase": "totalPrice", "PascalCase": "TotalPrice", "kebab-case": "total-price",
    "SCREAMING_SNAKE_CASE": "TOTAL_PRICE",
}  # fmt: skip


def _case_style(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return _STYLED[check.texts[0]] if want else rng.choice([v for k, v in _STYLED.items() if k != check.texts[0]])


def _listed(items: Sequence[str], *, rng: Random) -> str:
    """Return lines of items, half of the time with bullets."""
    mark = rng.choice(("- ", ""))
    return "\n".join(f"{mark}{item}" for item in items)


def _sorted_numbers(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    numbers = sorted(rng.sample(range(2, 900), 4), reverse=check.name == "descending")
    if not want:
        at = rng.randrange(3)
        numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    return _listed([f"{number} of them" for number in numbers], rng=rng)


def _growing(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    words = (re.findall(r"[A-Za-z]{2,}", text) * 12)[:12] or ["so"] * 12
    sizes = [1, 3, 5, 8] if check.name == "growing" else [8, 5, 3, 1]
    if not want:
        sizes[1], sizes[2] = sizes[2], sizes[1]
    return "\n".join(" ".join(words[:size]) for size in sizes)


def _equal_lines(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    words = (re.findall(r"[A-Za-z]{2,}", text) * 20)[:20] or ["so"] * 20
    sizes = [4, 4, 4] if want else [4, 4, 5]
    return "\n".join(" ".join(words[:size]) for size in sizes)


def _abecedarian(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    items = ["apples", "bread", "cheese", "dates", "eggs"]
    if not want:
        items[1], items[3] = items[3], items[1]
    return _listed(items, rng=rng)


def _items_unique(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    items = rng.sample(["apples", "bread", "cheese", "dates", "eggs", "figs"], 4)
    return _listed(items if want else [*items, items[0]], rng=rng)


def _items(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    """Return the text as a list whose items all have a mark, or all but one."""
    found = re.findall(r"(?m)^[ \t]*((?:[-*•+]|\d+[.)])[ \t]+)(.*)$", text)
    found = found or [("- ", part) for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()]
    shape = {"items_bold": "**{}** {}", "items_emoji": "🌍 {} {}", "items_upper": "{} {}"}[check.name]
    items = []
    for mark, item in found:
        first, _, rest = re.sub(r"[*_🌍]+\s*", "", item).partition(" ")
        items.append(mark + shape.format(first.upper() if check.name == "items_upper" else first, rest).strip())
    if not want:
        at = rng.randrange(len(items))
        items[at] = found[at][0] + "some more of it"
    return "\n".join(items)


def _word_start(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    letter = check.texts[0]
    words = [letter + ending for ending in ("arom", "elim", "inod", "orun")]
    return " ".join(words if want else [*words, "% 1"])


def _bullet_start(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    word = check.texts[0] if check.texts else "Always"
    words = [word] * 3 if want else [word, "Perhaps", word]
    return "\n".join(f"- {one} comes part {i + 1}" for i, one in enumerate(words))


def _alphabetical(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    items = ["apples", "bread", "cheese", "milk", "tomatoes"]
    if not want:
        items[1], items[3] = items[3], items[1]
    return "\n".join(f"- {item}" for item in items)


def _acrostic(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    letters = re.sub(r"\W", "", check.texts[0])
    lines = [f"{letter.upper()} is how this line of the text begins" for letter in letters]
    if not want:
        lines[rng.randrange(len(lines))] = "% 1"
    return "\n".join(lines)


def _options(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    return rng.choice(check.texts) if want else f"I would say {rng.choice(check.texts)}, I think"


_LANGUAGE_SAMPLES = {
    "German": "Das ist ein kurzer Text und er ist nicht auf Englisch geschrieben, sondern auf Deutsch.",
    "French": "C'est un texte court et il est écrit dans une langue que vous connaissez pour les amis.",
    "Spanish": "Este es un texto corto y no se escribe en inglés, que es la lengua de los otros.",
    "Italian": "Questo è un testo breve che non è scritto in inglese e che si legge con una certa calma.",
    "Portuguese": "Este é um texto curto que não se escreve em inglês, mas para os amigos do mundo.",
    "Dutch": "Dit is een korte tekst en het is niet in het Engels, maar dat is wat je van mij krijgt.",
    "Polish": "To jest krótki tekst i nie jest po angielsku, ale za to jak się czyta, to jest dla nas.",
    "Turkish": "Bu bir kısa metin ve çok güzel, ama İngilizce değil, için ne var bilmiyorum daha sonra.",
    "Russian": "Это короткий текст на русском языке.",
    "Arabic": "هذا نص قصير باللغة العربية.",
    "Hindi": "यह हिंदी में एक छोटा पाठ है।",
    "Japanese": "これは日本語の短い文章です。",
    "Chinese": "这是一段简短的中文文本。",
    "Korean": "이것은 한국어로 된 짧은 글입니다.",
    "Greek": "Αυτό είναι ένα σύντομο κείμενο.",
    "Hebrew": "זהו טקסט קצר בעברית.",
    "Thai": "นี่คือข้อความสั้น ๆ ภาษาไทย",
}


def _language(text: str, check: Check, want: bool, prompt: str, rng: Random) -> str:
    if want:
        return _LANGUAGE_SAMPLES.get(check.texts[0], text)
    return rng.choice([sample for name, sample in _LANGUAGE_SAMPLES.items() if name != check.texts[0]])


def _request(prompt: str) -> str:
    """Return the first sentence of a prompt with ten characters or more; the whole prompt if it has no end of a sentence."""
    found = re.match(r"[\s\S]{10,400}?[.!?](?=\s|$)", prompt)
    return found[0] if found else prompt


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _regex(texts: Sequence[str]) -> str:
    """Return a regular expression that matches some texts."""
    return f"^(?:{'|'.join(map(re.escape, texts))})$"


_EDITS: dict[str, _Edit] = {
    "include": _include,
    "include_any": _include_any,
    "forbid": _forbid,
    "start": _start,
    "first_word": _start,
    "end": _end,
    "last_word": _end,
    "first_sentence": _first_sentence,
    "last_sentence": _last_sentence,
    "paragraph_first": _paragraph_first,
    "line_start": _on_lines,
    "line_end": _on_lines,
    "bullet_start": _bullet_start,
    "bullets_alike": _bullet_start,
    "not_start": lambda t, c, want, p, rng: _start(t, c, not want, p, rng),
    "not_end": lambda t, c, want, p, rng: f"{t} And so on it goes" if want else f"{t} {c.texts[0]}",
    "no_period": _either(lambda t: t.rstrip(". \n\"'"), lambda t: f"{t.rstrip('.!?')}."),
    "bold_text": _bold_text,
    "in_order": _in_order,
    "own_line": _own_line,
    "line_first": _line_first,
    "last_line": _last_line,
    "line_has": _in_parts,
    "bullet_has": _in_parts,
    "bullet_end": _in_parts,
    "sentence_has": _in_parts,
    "sentence_start": _in_parts,
    "paragraph_has": _in_parts,
    "word_start": _word_start,
    "alternate": _alternate,
    "exact": _exact,
    "header": _header,
    "bullet_mark": _bullet_mark,
    "tags": _tags,
    "date_format": _date_format,
    "not_sentence_start": _not_sentence_start,
    "sentence_end": _sentence_end,
    "paragraph_start": _paragraph_edge,
    "paragraph_end": _paragraph_edge,
    "not_bullet_end": lambda t, c, want, p, rng: "\n".join(
        f"- {part.rstrip('.!?;, ')}{'' if want else c.texts[0]}"
        for part in re.split(r"(?<=[.!?])\s+|\n+", t)
        if part.strip()
    ),
    "first_paragraph": _one_paragraph,
    "last_paragraph": _one_paragraph,
    "json_value": _json_value,
    "enclosed": _enclosed,
    "case_style": _case_style,
    "reverse_alphabetical": lambda t, c, want, p, rng: _listed(
        ["tomatoes", "milk", "cheese", "bread"] if want else ["milk", "tomatoes", "cheese"], rng=rng
    ),
    "ascending": _sorted_numbers,
    "descending": _sorted_numbers,
    "growing": _growing,
    "shrinking": _growing,
    "equal_lines": _equal_lines,
    "starts_differ": _either(
        lambda t: "One came late. Two were early. The rest knew.", lambda t: f"It is so. {t} It was late."
    ),
    "items_unique": _items_unique,
    "sentence_lines": _either(
        lambda t: re.sub(r"(?<=[.!?])[ \t]+", "\n", t), lambda t: f"{t} It was late. No one knew."
    ),
    "blank_between": _either(lambda t: "- apples\n\n- bread\n\n- cheese", lambda t: "- apples\n- bread\n\n- cheese"),
    "no_nested": _either(lambda t: re.sub(r"(?m)^[ \t]+", "", t), lambda t: f"{t}\n- one\n    - two\n- three"),
    "abecedarian": _abecedarian,
    "same_ends": _either(lambda t: f"Late {t} So it was late.", lambda t: f"Well, {t} That is all."),
    "no_first_person": _either(
        lambda t: re.sub(r"(?i)\b(?:i|me|my|mine|we|us|ours?)\b", "they", t), lambda t: f"{t} I know it."
    ),
    "no_second_person": _either(lambda t: re.sub(r"(?i)\byou(?:r|rs)?\b", "they", t), lambda t: f"{t} You know it."),
    "is_xml": _either(
        lambda t: f"<note>{re.sub(r'[<>&]', ' ', t)}</note>", lambda t: f"<note>{re.sub(r'[<>&]', ' ', t)}<note>"
    ),
    "items_bold": _items,
    "items_emoji": _items,
    "items_upper": _items,
    "starts_emoji": _either(lambda t: f"🎉 {t}", lambda t: f"Well, {t}"),
    "ends_emoji": _either(lambda t: f"{t} 🎉", lambda t: f"{t} The end."),
    "number_only": _either(lambda t: "42", lambda t: f"The answer is 42. {t}"),
    "alphabetical": _alphabetical,
    "acrostic": _acrostic,
    "options": _options,
    "language": _language,
    "unique_words": _either(
        lambda t: " ".join(dict.fromkeys(re.findall(r"[A-Za-z]+", t.lower()))), lambda t: f"{t} It is what it is."
    ),
    "upper": _either(str.upper, lambda t: _capitalized(t.lower())),
    "lower": _either(str.lower, _capitalized),
    "title_case": _either(lambda t: re.sub(r"[A-Za-z]+", lambda m: _capitalized(m[0]), t), lambda t: f"{t} and more"),
    "is_regex": _either(lambda t: r"^[A-Z]{2,3}-\d+$", lambda t: r"^([A-Z]{2,3}-\d+$"),
    "matches": lambda t, c, want, p, rng: _regex(c.texts) if want else r"^\d{9}[a-z]+$",
    "no_match": lambda t, c, want, p, rng: r"^\d{9}[a-z]+$" if want else rng.choice((".+", _regex(c.texts))),
    "json": _either(lambda t: _json({"text": t}), lambda t: f"Here it is: {t}"),
    "json_keys": lambda t, c, want, p, rng: _json(dict.fromkeys(c.texts if want else c.texts[1:], t[:20])),
    "json_array": _either(lambda t: _json([t]), lambda t: _json({"text": t[:60]})),
    "csv": lambda t, c, want, p, rng: "\n".join(
        ",".join("abcdefghijklmnopqrstuvw"[: int(c.numbers[0]) + (not want)]) for _ in range(3)
    ),
    "table": _either(
        lambda t: f"{t}\n\n| name | value |\n|---|---|\n| a | 1 |", lambda t: re.sub(r"(?m)^\s*\|.*\n?", "", t)
    ),
    "code": _either(lambda t: f"{t}\n```\nprint(1)\n```", lambda t: t.replace("```", "")),
    "code_only": _either(lambda t: "```python\nprint(1)\n```", lambda t: f"Here it is:\n{t}"),
    "no_code": _either(lambda t: t.replace("```", ""), lambda t: f"{t}\n```\nprint(1)\n```"),
    "title": _either(lambda t: f"<<A Plain Title>>\n{t}", lambda t: t.replace("<<", "").replace(">>", "")),
    "postscript": lambda t, c, want, p, rng: (
        f"{t}\n\n{c.texts[0]} One more thing" if want else re.sub(re.escape(c.texts[0]), "", t, flags=re.I)
    ),
    "quoted": _either(lambda t: f'"{t.strip()}"', lambda t: t.strip().strip('"')),
    "two_answers": _either(
        lambda t: f"{t.replace('******', '')}\n******\nAnother one.", lambda t: t.replace("******", "")
    ),
    "repeat": lambda t, c, want, p, rng: f"{_request(p)}\n{t}" if want else f"Gladly. {t}",
    "ends_question": _either(lambda t: f"{t} What do you think?", lambda t: f"{t} That is all."),
    "ends_period": _either(lambda t: f"{t.rstrip('.!?')}.", lambda t: f"{t.rstrip('.')}!"),
    "ascii": _either(lambda t: t.encode("ascii", "ignore").decode(), lambda t: f"{t} Voilà, café."),
    "no_digits": _either(lambda t: re.sub(r"\d", "", t), lambda t: f"{t} There are 7."),
    "has_number": _either(lambda t: f"{t} There are 7.", lambda t: re.sub(r"\d", "", t)),
    "has_email": _either(lambda t: f"{t} Write to ann@example.org.", lambda t: re.sub(r"\S+@\S+", "", t)),
    "has_url": _either(lambda t: f"{t} See https://example.org/", lambda t: re.sub(r"https?://\S+|www\.\S+", "", t)),
    "iso_date": _either(lambda t: f"{t} It was 2026-03-14.", lambda t: re.sub(r"\d{4}-\d\d-\d\d", "14 March", t)),
    "no_contractions": _either(lambda t: re.sub(r"['’]", "", t), lambda t: f"{t} We don't know, it's late."),
    "no_bullets": _either(lambda t: re.sub(r"(?m)^\s*[-*•] ?", "", t), lambda t: f"{t}\n- one\n- two"),
    "bullet_list": _either(lambda t: f"{t}\n- one\n- two", lambda t: re.sub(r"(?m)^\s*[-*•] ?", "", t)),
    "numbered_list": _either(lambda t: f"{t}\n1. one\n2. two", lambda t: re.sub(r"(?m)^\s*\d+[.)] ?", "", t)),
    "lines_capital": _either(
        lambda t: "\n".join(map(_capitalized, t.splitlines())), lambda t: f"{t}\nand some more of it"
    ),
    "items_capital": _either(
        lambda t: re.sub(r"(?m)^(\s*(?:[-*•+]|\d+[.)])\s+\W*)(\w)", lambda m: m[1] + m[2].upper(), t),
        lambda t: f"{t}\n- and one more",
    ),
    "sentences_capital": _either(
        lambda t: re.sub(r"(?:^|(?<=[.!?…]))\W*\w", lambda m: m[0].upper(), t), lambda t: f"{t} And so on. yes it does."
    ),
    "one_line": _either(lambda t: " ".join(t.split()), lambda t: f"{t}\nAnd more."),
    "no_blank_lines": _either(lambda t: re.sub(r"\n\s*\n+", "\n", t), lambda t: f"{t}\n\nAnd more."),
    "no_markdown": _either(
        lambda t: re.sub(r"(?m)^\s*([#*+-]+|\d+\.) |\*\*|__|```|\|", "", t), lambda t: f"**Note** {t}"
    ),
}
"""Name of a check -> edit of a text towards the wanted result."""
