"""For each place of `sites`: texts that could make it slow, or the reason why no text can.

A `Case` has the public function that calls the place, and shapes of hostile texts that try to make the work grow faster
than the text. A reason is one line: the input is trusted, or bounded, or the pattern has no unbounded repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tirjudge.basis import parse_check
from tirjudge.best_of_n import best_first
from tirjudge.control_tokens import FAMILIES, tag_literals, tags_in
from tirjudge.engines.chat import BORDER, messages_of, places_of
from tirjudge.engines.chat_wire import ChatChoice
from tirjudge.engines.scripted import ByteTokenizer
from tirjudge.formats import format_named, tirjudge_1, tirjudge_2
from tirjudge.formats.blocks import SCORES
from tirjudge.formats.texts import as_served, neutralise
from tirjudge.integrations.detemplate import detemplate
from tirjudge.labels import place_of_labels
from tirjudge.right import Decision, ScoringRule, credit
from tirjudge.strategies import STRATEGIES
from tirjudge.strategies.base import Contest, rank
from tirjudge.types import ChatMessage, JudgeRequest, Mode, Rollout, StopReason
from tirjudge.verdict import Vote, pointwise_verdict
from tirjudge.visible import visible
from tirjudge_evidence.checks.response_json import fenced_block
from tirjudge_evidence.inside.documents import passages_of
from tirjudge_evidence.inside.sparql_text import check_query
from tirjudge_harness.best_of_n.graders.aime import integer_answer
from tirjudge_harness.best_of_n.graders.code import program_of
from tirjudge_harness.best_of_n.graders.final_answer import last_boxed, last_number
from tirjudge_harness.best_of_n.graders.ifeval.instructions import CHECKS
from tirjudge_harness.examples import example
from tirjudge_harness.external import chosen
from tirjudge_harness.forging.responses import forged
from tirjudge_harness.forging.techniques import techniques_named
from tirjudge_harness.own_data.cells import structure_of
from tirjudge_harness.row_files import read_rows
from tirjudge_harness.showing.shortening import shortened
from tirjudge_harness.sources import Collection
from tirjudge_pages.request_form import RequestForm
from tirjudge_sandbox.candidate import code_in
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.outcome import result_of
from tirjudge_sandbox.presets import Preset, imported
from tirjudge_sandbox.protocol import Ending, Printed, ProgramReport, StoppedBy
from tirjudge_sandbox.verl_tool import find_program, find_stdin, framed
from tirjudge_sandbox.watching import Watch
from tirjudge_server.caller_schema import CallerSchema
from tirjudge_server.dialects.options import options_of
from tirjudge_server.openai.answering import cut_at
from tirjudge_server.openai.forms import json_form
from tirjudge_server.openai.placeholders import check_placeholders, fill_in, names_sample
from tirjudge_server.openai.similarity import similarity
from tirjudge_server.openai.templates import recognise
from tirjudge_web.body import parse_body
from tirjudge_web.errors import Refused

Shape = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Case:
    """A place that untrusted text reaches."""

    feed: Callable[[str], object]
    """The public function that calls the place."""
    shapes: dict[str, Shape]
    """Name -> function that returns a text of about the given number of characters."""
    first_size: int = 256
    """Size of the first text in characters. Larger for work whose superlinear part is cheap, such as copying texts."""


def runs(*units: str, after: str = "", before: str = "") -> dict[str, Shape]:
    """Return shapes that repeat one piece of text, such as a marker, part of a marker, or a single character.

    Args:
        units: the repeated piece of each shape.
        after: end of every text.
        before: beginning of every text.
    """
    return {
        repr(f"{before}({unit})*{after}"): lambda n, unit=unit: f"{before}{unit * (n // len(unit) + 1)}{after}"
        for unit in units
    }


def mixed(*units: str) -> dict[str, Shape]:
    """Return a shape that repeats several pieces in turn."""
    return {
        f"{len(units)} marks in turn": lambda n: "".join(
            islice(cycle(units), 1 + n * len(units) // sum(map(len, units)))
        )
    }


def halves(opening: str, closing: str) -> dict[str, Shape]:
    """Return a shape with all opening delimiters first, then all closing delimiters."""
    return {
        repr(f"({opening})*({closing})*"): lambda n: (
            opening * (n // 2 // len(opening)) + closing * (n // 2 // len(closing))
        )
    }


ODD = runs(" ", "\n", "\0", "e\u0301", "\u200f", "\ud800", "x")
"""Unusual characters: blanks, NULs, combining characters, direction marks, lone surrogates."""

LINES: dict[str, Shape] = {"different lines": lambda n: "\n".join(f"{i:07d}" for i in range(n // 8))}

FENCES = runs("`", "```\n", "```python\n", "```python\nx\n```\n", "``` x\n", " ```", "```python ") | runs(
    " ", "x\n", "`` \n", before="```python\n"
)

VERDICTS = runs("<score>", "<score> ", "<score>1 </score", "<score>1</score>") | runs(" ", "1", "1 ", before="<score>")


def _tokens(text: str) -> list[int]:
    """Return tokens like those of the chat engine's conversations, with `|` as the border between parts."""
    return [BORDER if character == "|" else ord(character) for character in text]


def _answer(text: str) -> ChatChoice:
    """Return an endpoint's response whose tokens do not match its content."""
    tokens = [{"token": text, "logprob": 0.0}]
    return ChatChoice.model_validate(
        {"message": {"content": f"a{text[: len(text) // 2]}"}, "logprobs": {"content": tokens}}
    )


def _printed(text: str) -> ProgramReport:
    """Return the report of a program with an output of invalid UTF-8, and with an error message."""
    tail, stderr = b"\x80" * len(text), text.encode("utf-8", "surrogatepass")
    return ProgramReport(
        ending=Ending(wait_status=1 << 8, stopped_by=StoppedBy.NONE, cpu_s=0.0, wall_s=0.0, max_rss_kb=0),
        stdout=Printed(1 << 40, b"x", tail),
        stderr=Printed(len(stderr), stderr, b""),
        files={},
    )


def _watched(text: str) -> object:
    """Compare a line that a program compiles with the text of a response, without executing it."""
    watch = Watch("", ["a"], report=lambda how: None, refuses=False, scratch="/tmp")
    return watch.overlaps(text)


def _outcome(text: str) -> object:
    limits = Limits(file_mb=1 << 30)
    return result_of(_printed(text), limits=limits, level=IsolationLevel.UNSAFE, preset=Preset.STDLIB, queue_s=0.0)


def _met(text: str) -> object:
    async def compare(mode: object, indexes: object) -> Exception:
        return ValueError("not compared")

    return asyncio.run(rank(STRATEGIES["listwise"], text.split("\n"), contest=Contest(responses=(), ask=compare)))


def _credited(text: str) -> object:
    """Compute credit for equal scores: each response ties with all others."""
    indexes = range(len(text) // 8)
    scored = [Decision(shown=(index,), score=7.0) for index in indexes]
    return credit(scored, indexes, right=frozenset({0}), mode=Mode.POINTWISE, counting=ScoringRule())


def _voted(text: str) -> object:
    """Compute a verdict over many responses that were judged separately."""
    rollout = Rollout(prompt_ids=(), turns=(), stop_reason=StopReason.VERDICT, model="judge", label="7")
    indexes = range(len(text) // 8)
    return pointwise_verdict([Vote(order=(index,), rollout=rollout) for index in indexes], num_responses=len(indexes))


def _collected(text: str) -> object:
    found = Collection()
    for number, line in enumerate(text.split("\n")):
        found.add(example(id="x", prompt=f"{line}{number}", responses=("a", "b"), correct=(0,), subset=""), place="")
    return list(found.examples.values())


def _or_refused(feed: Callable[[str], object]) -> Callable[[str], object]:
    """Return a function that returns a refusal instead of raising it."""

    def answer(text: str) -> object:
        try:
            return feed(text)
        except Refused as refused:
            return refused

    return answer


def _schema(text: str) -> object:
    """Parse a schema whose types are nested in many branches."""
    part: Any = {"type": text.split("\n")}
    for _ in range(min(400, len(text) // 160)):
        part = {"anyOf": [part]}
    return json_form({"type": "json_schema", "json_schema": {"schema": {"properties": {"label": part}}}})


def _csv(text: str) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return read_rows(path)


def _filled(text: str) -> object:
    values = {"item": {"a": "b"}, "sample": {"output_text": "c"}}
    try:
        return fill_in(text, values)
    finally:
        names_sample(text)
        check_placeholders(text)


def _guided(text: str) -> object:
    limits = {"prompt_chars": len(text), "response_chars": len(text)}
    asked: dict[str, Any] = {"prompt": text, "responses": [text], "reference": text, "rubric": text}
    return tirjudge_1.FORMAT.render_prompt(Mode.POINTWISE, tools=False, max_tool_calls=0, **asked, **limits)


def _read_declared(text: str) -> object:
    """Read verdicts of all forms: labels and numbers in brackets and at the end, lines, and JSON."""
    names = ("mt-bench-pair", "mt-bench-single", "arena-hard", "prometheus-2", "rm-r1-instruct", "reward-bench-2")
    formats = [format_named(name) for name in (*names, "judgelm", "pandalm", "compassjudger-2", "rewardanything")]
    return [
        each.find_verdict([text], mode=mode, labels=("A", "B"))
        for each in formats
        for mode in (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE)
    ]


def _checked(kind: str, **given: Any) -> Callable[[str], object]:
    return lambda text: CHECKS[kind](text, **given)


_CHAT_MARKERS = (
    *("<|im_start|>", "<|im_start|>user\n", "<|im_start|>user", "<|im_end|>", "<|endoftext|>"),
    *("<|start_header_id|>user<|end_header_id|>", "<|start_header_id|>", "<|header_start|>user"),
    *("<start_of_turn>user\n", "<start_of_turn>", "<｜User｜>", "<｜Assistant｜>x"),
    *("[INST]", "[INST] x [/INST] y </s>", "[INST] <<SYS>>\n", "[/INST]", "<s>", "</s>", "<|user|>\n", "<|user|>\n\n"),
    *("USER: ", "USER: x ASSISTANT: y</s>", "<|start|>user<|message|>", "<|start|>assistant<|channel|>", "<|message|>"),
    *("<|start|>assistant<|message|>x<|end|>", "<|channel|>", "<think>", "</think>"),
    *(
        "<|PAD|>",
        "<|start|>assistant<|message|>x",
        "<｜begin▁of▁sentence｜>",
        "]~b]",
        "]~b]user\n",
        "[|user|]",
        "[|endofturn|]",
    ),
    *("<seed:bos>user\n", "<seed:eos>", "<|im_user|>user<|im_middle|>", "<beginning_of_sentence>user name=u\n"),
)
"""Markers of all chat templates that detemplating supports, complete and partial."""

_JUDGE_MARKERS = (
    *("[The Start of Assistant A's Answer]", "[The End of Assistant A's Answer]", "[The Start of ", "The "),
    *("[The Start of Assistant A's Answer]\nx\n[The End of Assistant A's Answer]\n", "[User Question]\n"),
    *("[The Start of the Reference Answer]", "<|The Start of Assistant A's Answer|>", "Question: ```\n", "\n```"),
    *("Question:\n```\nx\n```\n", "Ground truth answer:\n```\n", "Response:\n```\nx\n```\n", "GOLD SOLUTION:\n"),
    *("PREDICTED SOLUTION:\n", "GOLD SOLUTION:\nx\nPREDICTED SOLUTION:\n", "Answer:\n", "from 1 ", "scale of 1 to "),
    *(". ", "! \n", '"yes" or ', "scale of 9", "[x ", "Question:\n```\n"),
)

_ASKED = "[User Question]\nq\n[The Start of Assistant's Answer]\nr\n[The End of Assistant's Answer]\n"
"""A judge prompt. The text after it is searched for criteria and a scale."""


def _placed(text: str) -> None:
    """Find the place of the labels in a text with a score at its end, and again in one with a score at its start."""
    for written in (f"{text}<score>7</score>", f"<score>7</score>{text}", f"{text}7</score>"):
        end = written.index("7")
        opens = max(0, written.rfind("<score>", 0, end))
        place = place_of_labels(
            list(written.encode()),
            written,
            opens=opens,
            opened=min(end, opens + len("<score>")),
            start=end,
            labels=SCORES,
            closing="</score>",
            tokenizer=ByteTokenizer(),
        )
        asyncio.run(place)


def _checked_query(text: str) -> None:
    with contextlib.suppress(ValueError):
        check_query(text)


_OURS = "indexes, token ids or numbers of this package: no untrusted text"
_OPERATOR = "text of the operator or of the machine: command line, configuration, kernel"
_IN_SANDBOX = "runs in the sandbox, under the limits of a program"
_BOUNDED = "bounded by its quantifiers, such as `{1,64}`"
FIXED = "no unbounded repeats"
"""A test checks this for each pattern with this entry."""

INVENTORY: dict[str, Case | str] = {
    # The judge.
    "tirjudge.alternatives:_name_in": "splits a token once, at the first character other than a letter or digit",
    "tirjudge.basis:parse_check": Case(
        lambda text: (parse_check(text, keys=("A", "B")), parse_check(f"x\nCHECK {text}", keys=("A", "B"))),
        ODD
        | runs("CHECK ", "CHECK {", "\nCHECK 1", "[", "{", '{"A":', '{"A": 1, ', "9", "1e9", "\\u0000")
        | runs("9", '"A": 1, ', '"', " ", "[", before='CHECK {"A": ', after="}"),
    ),
    "tirjudge.cli:missing_module": _OURS,
    "tirjudge.strategies.knockout:Knockout.rank": _OURS,
    "tirjudge.strategies.listwise:Listwise.rank": _OURS,
    "tirjudge.best_of_n:best_first": Case(
        lambda text: best_first([0.0] * len(text.split()), answers=text.split()), LINES
    ),
    "tirjudge.strategies.base:rank": Case(_met, LINES),
    "tirjudge.strategies.base:groups_of": _OURS,
    "tirjudge.right:credit": Case(_credited, runs("x")),
    "tirjudge.control_tokens:_first_characters": Case(
        FAMILIES.broken,
        ODD | runs("<", "]~", "[UNUSED_TOKEN_", "<seed:", "<unused", "[|user|", "/nothink"),
        first_size=1 << 15,
    ),
    "tirjudge.integrations.detemplate:*": Case(
        detemplate,
        ODD
        | runs(*_CHAT_MARKERS)
        | mixed(*_CHAT_MARKERS)
        | runs(" ", "</s>", "<|im_end|> ", "<|call|>", before="<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"),
    ),
    "tirjudge.engines.chat:ChatEngine._cut": "searches a few trusted stop strings once each",
    "tirjudge.engines.chat_thoughts:unopened_thought": "searches a few fixed tags once each",
    "tirjudge.engines.chat:_split": Case(
        lambda text: messages_of(_tokens(text)), runs("a||", "a|b|", "x", before="q|", after="a|"), first_size=1 << 15
    ),
    "tirjudge.engines.chat:places_of": Case(
        lambda text: places_of(_answer(text)), runs("a", "b") | {"ab...": lambda n: "ab" + "a" * n}
    ),
    "tirjudge.engines.chat_wire:_BAD_KEY": FIXED,
    "tirjudge.engines.chat_wire:_FILTERED": FIXED,
    "tirjudge.engines.chat_wire:_NO_CREDIT": FIXED,
    "tirjudge.engines.chat_wire:_NO_MODEL": "one bounded repeat, in a message that is cut to 1,000 characters",
    "tirjudge.engines.chat_wire:_REFUSES": FIXED,
    "tirjudge.engines.chat_wire:_TOO_LONG": FIXED,
    "tirjudge.engines.chat_wire:_WITH_THE_ANSWER": FIXED,
    "tirjudge.engines.chat_wire:_is_about_the_number": "a single character class",
    "tirjudge.engines.chat_wire:_is_named": "a fixed word between two word boundaries",
    "tirjudge.engines.embedded:EmbeddedEngine._schedule": _OURS,
    "tirjudge.engines.embedded:Qwen3._groups": _OURS,
    "tirjudge.engines.fleet_urls:_urls_in": _OPERATOR,
    "tirjudge.engines.repetition:is_repeated": "token ids, at most the last 2,048 for each of 32 lengths",
    "tirjudge.engines.scripted:ScriptedEngine.generate": "for tests",
    "tirjudge.engines.tokenization:find_stop": "continues from the end of the previous search; the stop strings are trusted",
    "tirjudge.engines.vllm:_PROGRESS": _OPERATOR,
    "tirjudge.engines.vllm_answer:_ends_with": "the texts of the last few tokens",
    "tirjudge.engines.vllm_answer:Reader._fit_ids_to_text": "token ids; each step drops twice as many as the one before",
    "tirjudge.engines.probing:ProbingTokenizer.token_bytes": "the text of one token",
    "tirjudge.labels:_boundaries": Case(_placed, runs("x", "\n", "é"), first_size=1 << 12),
    "tirjudge.labels:place_of_labels": Case(_placed, runs(" ", "\n", before="<score>"), first_size=1 << 12),
    "tirjudge.labels:_Spellings.of": _OURS,
    "tirjudge.labels:_Spellings.tokens_after": _OURS,
    "tirjudge.judge:_Session._best_of": _OURS,
    "tirjudge.judge:_Session._group_size": _OURS,
    "tirjudge_harness.doctor.format_checks:_labels": "examples of a format file, which the user gives",
    "tirjudge.formats.declaration:SLOT": "trusted templates; inserted texts are not searched",
    "tirjudge.help:module": "difflib: an argument of the command line, against the names of commands",
    "tirjudge.http.protocol:_EXPECTED": "messages of pydantic and of validators; anchored at their start",
    "tirjudge.http.protocol:module": "difflib: at most 80 characters of one field name, against the fields of a request",
    "tirjudge.formats.declaration:module": "difflib: at most 40 characters of a format file, which the user gives",
    "tirjudge.formats.declaration:ModePart.read": Case(_read_declared, ODD | runs("</think>", "</think", "<think>")),
    "tirjudge.formats.verdict_forms:*": Case(
        _read_declared,
        ODD
        | runs("[", "[[", "[[A", "[[A]]", "[[A>", "[[1", "[[1.", "[[1.1]]", "]", "1", "1 ", "1,", "A", "(", "[RESULT]")
        | runs("Result:", "\nResult:", "Score: (", "**Result:** ", " ", "\n", "[(", before="[RESULT]")
        | runs("{", "}", '"', "\\", '{"', '{"a":', '{"scores":{', "{}", "[", '{"a":1}')
        | runs("1", before='{"scores": {"model-1": ', after="}}")
        | halves("{", "}")
        | halves('{"a":', "}")
        | mixed("[[A]]", "[[B]]", "[RESULT]", "{", "}", " "),
    ),
    "tirjudge.formats.tirjudge_1:_block": Case(
        lambda text: tirjudge_1.FORMAT.blocks(text, names=("python",)), ODD | FENCES
    ),
    "tirjudge.formats.tirjudge_1:_verdict": Case(
        lambda text: tirjudge_1.FORMAT.find_verdict([text], mode=Mode.POINTWISE, labels=("1",)), ODD | VERDICTS
    ),
    "tirjudge.formats.tirjudge_2:_FENCE": Case(
        lambda text: tirjudge_2.FORMAT.blocks(text, names=("python",)),
        ODD
        | FENCES
        | runs("~", "~~~\n", "   ```py\n x\n", "```python ", "````python\n```\n", " ", before="```python\n"),
    ),
    "tirjudge.formats.tirjudge_2:_verdict": Case(
        lambda text: tirjudge_2.FORMAT.find_verdict([text], mode=Mode.POINTWISE, labels=("1",)),
        ODD
        | VERDICTS
        | runs(
            "*", "**1", "score", "score ", "score:", "score score*", "[", "1*", "1.0", "1 /", "1 out", before="<score>"
        )
        | runs("*", " ", "*.", "/10", " /10", "/10 ", "out of ", "0", before="<score>score 1")
        | runs(" ", "*", before="<score>1 out of", after="10</score>"),
    ),
    "tirjudge.formats.texts:_TAGS": Case(
        as_served,
        ODD
        | runs("<", "</", "< ", "<\u200b", "<response_", "<response_a", "</prompt", "</prompt ", "<response_a>")
        | runs(" ", "\u200b", "\u200b ", "-", "_", "_ ", "a", before="</response", after=">")
        | runs("\u200b", " ", before="<", after="/prompt>"),
    ),
    "tirjudge.control_tokens:ControlTokens.found_in": Case(
        FAMILIES.found_in, ODD | runs("<", "]~", "<s>", "[UNUSED_TOKEN_", "<seed:", "<unused1"), first_size=1 << 15
    ),
    "tirjudge.control_tokens:_TAG": Case(
        lambda text: (tags_in(text), tag_literals(text)),
        ODD | runs("<", "[", "<a", "<|ab|>", "[AB]", "]", ">", "<aa>[") | runs("a", before="<"),
        first_size=1 << 15,
    ),
    "tirjudge.control_tokens:_HTML_TAG": "applied to strings of at most 64 characters",
    "tirjudge.control_tokens:_CAPITALS": "applied to strings of at most 64 characters",
    "tirjudge.formats.texts:_DELIMITERS": Case(
        neutralise,
        ODD | FENCES | runs("<", "<|", "</", "<response_", "<response_a>", "[/", "[INST]", "a", before="<response_"),
    ),
    "tirjudge.formats.tirjudge_1:_GUIDANCE": Case(_guided, runs("<", "</reference", "<rubric>", "</criteria>", "`")),
    "tirjudge.formats.texts:_PLACEHOLDER": "trusted templates; inserted texts are not searched",
    "tirjudge.http.trace_context:_TRACEPARENT": _BOUNDED,
    "tirjudge.tools.credentials:_VARIABLE": _OPERATOR,
    "tirjudge.tools.mcp_connection:_Session._keep": "keeps only the last 1,500 bytes",
    "tirjudge.tools.signatures:_resolved": "splits the texts of at most four references once each",
    "tirjudge.types:_TURN": FIXED,
    "tirjudge.types:_SURROGATE": Case(
        lambda text: ChatMessage(role="user", content=text), ODD | runs("x", after="\ud800")
    ),
    "tirjudge.claims:_of_turn": "one slice for each claim: at most 8,000 characters, and 1,024 claims in a judgment",
    "tirjudge.verdict:pointwise_verdict": Case(_voted, runs("x")),
    "tirjudge_web.body:parse_body": Case(
        _or_refused(lambda text: parse_body(text.encode("utf-8", "surrogatepass"), JudgeRequest)),
        runs("0,", before='{"mode":"pointwise","responses":["x"],"prompt":[', after="0]}")
        | runs("0,", before='{"mode":"listwise","prompt":"x","responses":[', after="0]}")
        | runs("{},", before='{"mode":"pointwise","responses":["x"],"prompt":[', after="0]}")
        | {"unknown fields": lambda n: json.dumps({str(i): 0 for i in range(n // 12)})}
        | runs("[", '{"":', "9", "\\u0000"),
        first_size=1 << 21,  # smaller bodies skip the exact count of values
    ),
    "tirjudge_web.identity:_SANE_ID": _BOUNDED,
    # The sandbox.
    "tirjudge_sandbox.cgroups:_mounts": _OPERATOR,
    "tirjudge_sandbox.containers:_Output._next_chunk": "keeps only the last 4 KiB",
    "tirjudge_sandbox.frames:report_from": "cuts two outputs once each",
    "tirjudge_sandbox.outcome:_BOX_BORDER": Case(_outcome, ODD | runs("| ", "+-", "\n|", "- \n")),
    "tirjudge_sandbox.packages:_BARE_MODULE": _OPERATOR,
    "tirjudge_sandbox.packages:_REQUIREMENT": _OPERATOR,
    "tirjudge_sandbox.packages:_installed": _OPERATOR,
    "tirjudge_sandbox.packages:_normal": _OPERATOR,
    "tirjudge_sandbox.presets:_IMPORT": Case(
        imported,
        runs(" ", "\n", ":", "; ", "import ", "from ;", ";import\t", "import sympy,", "\nimport\n", before="numpy\n")
        | runs(" ", " \t", before="numpy;import", after="#"),
    ),
    "tirjudge_sandbox.presets:_MENTION": FIXED,
    "tirjudge_sandbox.presets:_WORD": "a single character class, on disjoint parts of a text",
    "tirjudge_sandbox.request:_NAME": _BOUNDED,
    "tirjudge_sandbox.verl_tool:_PYTHON_TAG": FIXED,
    "tirjudge_sandbox.verl_tool:_PYTHON_FENCE": FIXED,
    "tirjudge_sandbox.verl_tool:_INPUT_FENCE": FIXED,
    "tirjudge_sandbox.verl_tool:_between": Case(
        lambda text: (find_program(text), find_stdin(text, extra={}), framed("", action=text)),
        ODD
        | FENCES
        | runs(
            "<python>", "<python", "</python>", "<python></python", "<python>x</python>", "```\npython", "```input\n"
        )
        | halves("<python>", "</python>")
        | halves("```input\n", "\n```"),
    ),
    "tirjudge_sandbox.zygote:_serve_slot": _OURS,
    # The evidence.
    "tirjudge_evidence.checks.ask:_TOKEN": _OPERATOR,
    "tirjudge_evidence.checks.opening:OpenCheck.result": _OURS,
    "tirjudge_evidence.checks.opening:OpenChecks.examine": _OURS,
    "tirjudge_evidence.checks.response_json:fenced_block": Case(
        lambda text: fenced_block(text, languages=("json",)), ODD | FENCES | runs("```json\n", "{", before="```json\n")
    ),
    "tirjudge_evidence.functions:_listing.handle": _OURS,
    "tirjudge_evidence.inside.documents:*": Case(
        lambda text: list(passages_of(text)),
        ODD | LINES | runs("\n-", "\n \n", "\n\t", ". ", ".'", "a.", "。", "漢", " \n", "- x\n"),
    ),
    "tirjudge_evidence.inside.graph:Graph._node": _IN_SANDBOX,
    "tirjudge_evidence.inside.prover:_statement": _IN_SANDBOX,
    "tirjudge_evidence.inside.sparql_text:*": Case(
        _checked_query,
        ODD
        | runs("<", "a.", "a:", "?", "@a-", "#", "(", '""')
        | runs("\\'", '\\"', "a", before='"')
        | runs("\\'''", "''", before="'''"),
    ),
    "tirjudge_evidence.inside.table:*": _IN_SANDBOX,
    "tirjudge_evidence.inside.terms:local_name": _IN_SANDBOX,
    "tirjudge_evidence.tasks.programs:with_words": _OURS,
    "tirjudge_evidence.tasks.programs:with_words#2": _OURS,
    # The server.
    "tirjudge_server.access.keys:_NAME": _BOUNDED,
    "tirjudge_server.demo:_READY": _OURS,
    "tirjudge_server.demo:_show_rollout": _OURS,
    "tirjudge_server.dialects.options:_NO_TEXT": FIXED,
    "tirjudge_server.dialects.options:options_of": Case(
        _or_refused(lambda text: options_of({"scale": text, "votes": text})),
        runs("[", '{"":', "9", "0,", "-", "1e", " "),
    ),
    "tirjudge_server.coalescing:InFlightJudgment._follow": _OURS,
    "tirjudge_server.markers:_TURN": _BOUNDED,
    "tirjudge_server.records.cli:_hash": _OPERATOR,
    "tirjudge_server.timestamps:_SPAN": _OPERATOR,
    "tirjudge_server.openai.answering:cut_at": Case(
        lambda text: cut_at(text, stops=[f"{text[: len(text) // 2]}b", "b"]),
        runs("a", "aab") | {"ab...": lambda n: "ab" + "a" * n},
    ),
    "tirjudge_server.chat_models:_by_name": _OPERATOR,
    "tirjudge_server.cli:serve": _OPERATOR,
    "tirjudge_server.evals.objects:_ITEM_ID": _BOUNDED,
    "tirjudge_server.evals.store:_ID": _BOUNDED,
    "tirjudge_server.evals.store:EvalStore.graded_rows": _OURS,
    "tirjudge_server.openai.batches:_WINDOW": _BOUNDED,
    "tirjudge_server.openai.conversation:_answered": _OURS,
    "tirjudge_server.openai.formula:Formula.__init__": "at most MAX_CHARS characters",
    "tirjudge_server.openai.forms:json_form": Case(_or_refused(_schema), LINES),
    "tirjudge_server.openai.placeholders:_pieces": Case(
        _filled,
        ODD
        | runs("{", "}", "{{", "{{ ", "{{}", "{{item", "{{item.a}}", "{{ sample.output_text }}", "{{x}}")
        | halves("{{", "}}")
        | halves("{{ ", " }}"),
    ),
    "tirjudge_server.openai.placeholders:_PATH": Case(
        _filled,
        runs(".a", "[0]", '["a"]', "['", '["', " ", "a", "[9", "9", before="{{item.a", after="}}")
        | runs(".a", "[0]", "['a'", " ", "9", before="{{item.a[0", after="!}}"),
    ),
    "tirjudge_server.openai.placeholders:_STEP": "searches a text that `_PATH` has matched",
    "tirjudge_server.openai.similarity:_WORD": "a single character class",
    "tirjudge_server.openai.similarity:_bleu": Case(
        lambda text: similarity(text, text[::-1], metric="bleu"), runs("a ", "1-", "&quot;", "<skipped>", "-\n", "a.b,")
    ),
    "tirjudge_server.caller_schema:CallerSchema": Case(
        lambda text: CallerSchema({"pattern": "^(a+)+$"}).problem(text + "b"), runs("a", "ab", "\n")
    ),
    "tirjudge_server.openai.similarity:_ngrams": "n-grams of at most five words",
    "tirjudge_server.openai.similarity:module": "at most MAX_CHARS characters, because the work grows with the product",
    "tirjudge_server.openai.apart.grader_side:arithmetic": _IN_SANDBOX,
    "tirjudge_server.openai.apart.grader_side:eval_apart": _IN_SANDBOX,
    "tirjudge_server.openai.apart.literals:tell": _IN_SANDBOX,
    "tirjudge_server.openai.batchstore:BatchStore._check_room": "reads the batches of one key, at most its quota",
    "tirjudge_server.openai.python_grader:_imported": "splits each line twice at most, of at most 250,000 characters",
    "tirjudge_server.openai.templates:*": Case(
        _or_refused(recognise),
        ODD
        | FENCES
        | runs(*_JUDGE_MARKERS)
        | mixed(*_JUDGE_MARKERS)
        | runs(" ", "\n", ". ", "[x", "from 1 ", "1", "9 ", "from 9\n", before=_ASKED),
    ),
    "tirjudge_server.openai.wire:_without_branches": "a path into a model: a few parts of at most 80 characters",
    "tirjudge_server.records.account:_marked": "splits a response once, at the places of at most 500 claims",
    "tirjudge_server.records.endpoints:_ID": _BOUNDED,
    "tirjudge_server.records.endpoints:router.judgments": _OURS,
    "tirjudge_pages.request_form:RequestForm.field_of": Case(
        lambda text: RequestForm().field_of(text), runs(".", "a.")
    ),
    "tirjudge_server.vllm_command:shares": _OPERATOR,
    "tirjudge_server.worker_guard:_children": _OPERATOR,
    # The harness.
    "tirjudge_harness.evals.starting:renamed_models": _OPERATOR,
    "tirjudge_harness.bench_run:judge_plan": _OURS,
    "tirjudge_harness.benchmarks.rewardbench2:_kind_and_pair": "one repeat, at the end",
    "tirjudge_harness.best_of_n.graders.aime:_DECORATION": Case(
        lambda text: integer_answer(rf"\boxed{{{text}}}"),
        ODD | runs(r"\text", r"\text{", r"\text {} ", "^{", "=", "9", "{,}", ","),
    ),
    "tirjudge_harness.best_of_n.graders.aime:integer_answer": "one repeat, and at most MAX_DIGITS digits are read",
    "tirjudge_harness.best_of_n.graders.code:CodeGrader._grade": "ten names of at most 200 characters",
    "tirjudge_harness.best_of_n.graders.code:CodeGrader._not_graded": "ten error messages of at most 300 characters",
    "tirjudge_harness.best_of_n.graders.code:Tests.is_unit_test": "a fixed word, without a repeat",
    "tirjudge_harness.best_of_n.graders.code:Tests.mention": "a name of at most 500 characters, limited by the sandbox",
    "tirjudge_harness.best_of_n.graders.code:_FENCED": Case(
        lambda text: program_of(text, entry_point="f"), ODD | FENCES
    ),
    "tirjudge_harness.best_of_n.graders.code:_MISSING_MODULE": "error messages of at most 500 characters",
    "tirjudge_harness.best_of_n.graders.code:_is_python": Case(
        lambda text: program_of(text, entry_point=None),
        runs("x\n", "(", "[", "-", "f(", "'", '"""', after="\n```\n```"),
    ),
    "tirjudge_harness.best_of_n.graders.code:program_of": Case(
        lambda text: program_of(text, entry_point="f"),
        runs(" ", "async ", "f ", "def ", "def f\n", " \n", before="```\n"),
    ),
    "tirjudge_harness.best_of_n.graders.final_answer:_BARE_BOX": Case(
        last_boxed, ODD | runs(r"\boxed ", r"\boxed", "\\boxed \n", "5", " ", before=r"\boxed ")
    ),
    "tirjudge_harness.best_of_n.graders.final_answer:_BRACES": Case(
        last_boxed,
        runs("\\", "{", "}", r"\boxed{", r"\boxed {", r"\fbox  ", "{}")
        | halves(r"\boxed{", "}")
        | runs("{}", before=r"\boxed{"),
    ),
    "tirjudge_harness.best_of_n.graders.final_answer:last_boxed": Case(
        last_boxed, runs(r"\boxed{1}", r"\boxed{1}\boxed{")
    ),
    "tirjudge_harness.best_of_n.graders.final_answer:_NUMBER": Case(
        last_number,
        ODD
        | runs("9", "-", ".", "1,", "1,111", "1,111,", ".1", "1.", "-1", "-.")
        | runs(",111", before="1", after="1"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_BOLD": Case(
        _checked("detectable_format:number_highlighted_sections", num_highlights=2),
        ODD | runs("*", "**", "* ", "** ", "**x*", "*\n"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_HIGHLIGHT": "with `_BOLD`: the same instruction",
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_DASHED_ITEM": Case(
        _checked("detectable_format:number_bullet_lists", num_bullets=2),
        ODD | runs("-", " -", "- \n", "*", "* x\n", " *", "*\n", "\t", " \n"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_STARRED_ITEM": "with `_DASHED_ITEM`: the same instruction",
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_FENCE": FIXED,
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_POSTSCRIPTS": FIXED,
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_POSTSCRIPTS#2": "with `_POSTSCRIPTS`: the same dict",
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_existence": Case(
        lambda text: CHECKS["keywords:existence"](text, keywords=[f"{text[: len(text) // 2]}b"]), runs("a", "ab", " ")
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_forbidden_words": Case(
        lambda text: CHECKS["keywords:forbidden_words"](text, forbidden_words=[f"{text[: len(text) // 2]}b"]),
        runs("a", "a ", "ab"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_frequency": Case(
        lambda text: CHECKS["keywords:frequency"](
            text, keyword=f"{text[: len(text) // 2]}b", frequency=1, relation="at least"
        ),
        runs("a", "ab", " "),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_multiple_sections": Case(
        lambda text: CHECKS["detectable_format:multiple_sections"](
            text, section_spliter=f"{text[: len(text) // 2]}b", num_sections=1
        ),
        runs("a", "ab", "9"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_nth_paragraph_first_word": "splits a word once",
    "tirjudge_harness.best_of_n.graders.ifeval.instructions:_title": Case(
        _checked("detectable_format:title"), ODD | runs("<", ">", "<<", "<< >>", "<<\n") | halves("<<", ">>")
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.words:_WORD": Case(
        _checked("length_constraints:number_words", num_words=1, relation="at least"), ODD | runs("a ")
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.words:_language_detector": "language profiles of the installed package",
    "tirjudge_harness.best_of_n.graders.ifeval.words:_sentence_splitter": Case(
        _checked("length_constraints:number_sentences", num_sentences=1, relation="at least"),
        runs(".", "a. ", "?", "? ", ")", '."', "A."),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.words:_word_splitter": Case(
        _checked("change_case:capital_word_frequency", capital_frequency=1, capital_relation="at least"),
        runs("A ", "'", "can't ", "--", "$", '"', "A", ".", ",", "[A"),
    ),
    "tirjudge_harness.best_of_n.graders.ifeval.words:is_in_language": Case(
        _checked("language:response_language", language="en"), runs("a", "a@", "a ", "http://", "-")
    ),
    "tirjudge_harness.best_of_n.graders.math_worker:final_answer": "in a process with a time limit, which is killed",
    "tirjudge_harness.best_of_n.graders.math_worker:same_answer": "in a process with a time limit, which is killed",
    "tirjudge_harness.decisions:JudgedExample.by_judgment": _OURS,
    "tirjudge_sandbox.candidate:code_in": Case(
        code_in, FENCES | LINES | ODD | runs("~", "~~~\n", "~~~py\n", "````\n```\n", "```a`\n", "``` ```\n")
    ),
    "tirjudge_sandbox.channel:Channel.data_received": "binary lengths; a message has a maximum size",
    "tirjudge_sandbox.guest:_results_of": _OURS,
    "tirjudge_sandbox.watching:_ARITHMETIC": "a single character class",
    "tirjudge_sandbox.watching:_IMPORT_LINE": Case(
        _watched,
        ODD
        | LINES
        | runs("import ", "from ", "import a, ", "import", "a ")
        | runs("a", ".", " ", "import a ", before="from a ", after="!"),
    ),
    "tirjudge_sandbox.watching:_NAME": "single character classes",
    "tirjudge_harness.external:_DECISION": Case(
        lambda text: chosen(text, shown=[0, 1]),
        ODD | runs(" ", "A", "[", "]]", ">", "A ", before="A", after="!") | runs(" ", after="[["),
    ),
    "tirjudge.durable:Journal._put": _OURS,
    "tirjudge.opening:open_functions": "options of the operator",
    "tirjudge_harness.forging.responses:_function_in": Case(
        lambda text: forged(text, techniques_named(["print-and-exit"])[0]),
        FENCES | LINES | runs("def ", "def f\n", "def f(\n", "(") | runs("def f(): 0\n", before="x = 1\n"),
    ),
    "tirjudge_harness.forging.responses:_is_code": Case(
        lambda text: forged(text, techniques_named(["print-and-exit"])[0]), runs("x = 1\n", "(", "f()\n", "# ")
    ),
    "tirjudge_harness.forging.techniques:_MARK": "the techniques of this package",
    "tirjudge_harness.own_data.conversations:_TURN": Case(
        structure_of,
        LINES
        | runs("\n", "\n\n", "\n\nHuman:", "\n\nAssistant: x", "\n\nHuman", before="Human:")
        | runs("[", '{"role":', ',{"role": "user", "content": ""}', before="[{"),
    ),
    "tirjudge_harness.own_data.detection:_NUMBERED": "no repeats",
    "tirjudge_harness.own_data.detection:_NUMBERED_FIRST": "no repeats",
    "tirjudge_harness.own_data.detection:_RATER": "repeats of at most two characters",
    "tirjudge_harness.own_data.labels:_COMPARED": "repeats of at most three characters",
    "tirjudge_harness.own_data.labels:_index_of": "labels of at most MAX_LABEL_CHARS characters",
    "tirjudge_harness.own_data.mapping:label_values_of": "options of the command",
    "tirjudge_harness.showing.shortening:shortened": Case(shortened, LINES | runs("\n", "\r\n", "x")),
    "tirjudge_pages.judgment:JudgmentView.timeline": "at most MAX_ITEMS rollouts, and MAX_TURNS turns in all",
    "tirjudge_pages.pieces:_WORD": "at most MAX_CHARS characters; each alternative begins with another kind of character",
    "tirjudge_pages.pieces:module": "at most MAX_CHARS characters, in lines of at most MAX_LINE_CHARS",
    "tirjudge.visible:visible": Case(visible, ODD | runs("\x1b[31m", "\u202e")),
    "tirjudge_harness.row_sampling:shares_of": _OURS,
    "tirjudge_harness.row_sampling:sample": _OURS,
    "tirjudge_harness.reports.formats:_md": "a single character class",
    "tirjudge_harness.reports.formats:_tex": "no repeats",
    "tirjudge_harness.reports.pages.indexing:journal_places": "one search of each line for the end of its key",
    "tirjudge_harness.reports.pages.tables:published_tables": _OURS,
    "tirjudge_harness.reports.shapes:_parts_without_value": _OURS,
    "tirjudge_harness.row_files:read_rows": Case(
        _csv,
        {"columns and rows": lambda n: "a," * (n // 4) + "b\n" + "x\n" * (n // 4)}
        | runs('"', '"",', "a\n", ",\n", '"\n', before="a,b\n"),
    ),
    "tirjudge_harness.runner:Runner.judge": _OURS,
    "tirjudge_harness.sources:Collection": Case(_collected, runs("\n")),
    "tirjudge_harness.statistics.agreement:agreement_with_labels": _OURS,
    "tirjudge_harness.statistics.calibration:_of_choices": _OURS,
    "tirjudge_harness.statistics.intervals:_mean": _OURS,
}
"""Name of the place -> case or reason. `module:*` covers a whole module. Functions that the scan does not find may be
added."""
