"""Checks of a format of another judge with the served model: its prompts in the chat template, and its labels as tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isawaitable

from tirjudge.engines.base import Tokenizer
from tirjudge.errors import TemplateFailed
from tirjudge.formats.base import FoundVerdict
from tirjudge.formats.declaration import ModePart
from tirjudge.formats.declared import NUM_SAMPLED, DeclaredFormat, sample_request
from tirjudge.judge import Judge
from tirjudge.labels import place_of_labels
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.doctor.findings import ModelFinding

NUM_COMPARED_CHARS = 60
"""Number of characters at the start and at the end of a message that are searched in the rendered prompt."""


async def format_findings(judge: Judge) -> list[ModelFinding]:
    """Return the findings about the format of a judge; empty: it is not a format of another judge.

    Raises:
        TirjudgeError: the model cannot be reached.
    """
    format = judge.format
    if not isinstance(format, DeclaredFormat):
        return []
    findings: list[ModelFinding] = []
    for mode, part in format.file.modes.items():
        for number, prompt in enumerate(part.prompt, start=1):
            name = f"{mode} prompt" if len(part.prompt) == 1 else f"{mode} prompt {number}"
            findings.append(await _prompt(judge, format, sample_request(prompt, mode=mode), name=name))
        findings.append(await _labels(judge, format, mode=mode, part=part))
    return findings


async def _prompt(judge: Judge, format: DeclaredFormat, request: JudgeRequest, *, name: str) -> ModelFinding:
    """Render a prompt with the template of the model, and check that each message is in the result."""
    tokenizer, profile = judge.engine.tokenizer, judge.profile
    messages = format.render(
        request,
        order=range(len(request.responses)),
        tools=(),
        prompt_chars=profile.prompt_chars,
        response_chars=profile.response_chars,
        control_tokens=await tokenizer.control_tokens(),
    )
    roles = ", ".join(message.role for message in messages)
    if not judge.engine.facts.constrains:
        return ModelFinding(name=name, is_ok=None, detail=f"roles {roles}; the chat template is not known")
    try:
        ids = await tokenizer.encode_prompt(messages)
    except TemplateFailed as error:
        return ModelFinding(name=name, is_ok=False, detail=f"the chat template refuses the roles {roles}: {error}")
    text = await _decoded(tokenizer, ids)
    if text is None:
        return ModelFinding(name=name, is_ok=None, detail=f"roles {roles}; {len(ids)} tokens, which cannot be decoded")
    lost = [message.role for message in messages if not all(part in text for part in _ends(message.content))]
    if lost:
        detail = f"the chat template does not show the message of the role {lost[0]}"
        return ModelFinding(name=name, is_ok=False, detail=detail)
    if len(ids) > judge.room:
        detail = f"{len(ids)} tokens without the texts of a request, but the context has room for {judge.room}"
        return ModelFinding(name=name, is_ok=False, detail=detail)
    return ModelFinding(name=name, is_ok=True, detail=f"roles {roles}; {len(ids)} tokens with texts of a few words")


def _ends(content: str) -> Iterator[str]:
    """Yield the start and the end of a message, without blanks, which templates remove."""
    stripped = content.strip()
    yield stripped[:NUM_COMPARED_CHARS].strip()
    yield stripped[-NUM_COMPARED_CHARS:].strip()


async def _decoded(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    decode = getattr(tokenizer, "decode", None)
    if decode is None:
        return None
    text = decode(ids)
    return await text if isawaitable(text) else text


async def _labels(judge: Judge, format: DeclaredFormat, *, mode: Mode, part: ModePart) -> ModelFinding:
    """Check that the probabilities of the labels can be read where the examples of the format have their verdict."""
    name, num_read, spelled = f"{mode} labels", 0, dict[str, None]()
    size = 1 if mode is Mode.POINTWISE else max(prompt.num_responses or NUM_SAMPLED for prompt in part.prompt)
    found = [
        (example.text, verdict)
        for example in part.example
        if (verdict := _verdict(format, example.text, mode=mode, num_responses=example.responses or size)) is not None
    ]
    with_texts = [(text, verdict) for text, verdict in found if verdict.spellings]
    if not with_texts:
        return ModelFinding(name=name, is_ok=None, detail="no probabilities: the texts of the verdict cannot be listed")
    if not judge.engine.facts.constrains:
        return ModelFinding(name=name, is_ok=None, detail="the vocabulary is not known")
    tokenizer = judge.engine.tokenizer
    for text, verdict in with_texts:
        labels = tuple(verdict.spellings or ())
        spelled |= dict.fromkeys(labels)
        place = await place_of_labels(
            await tokenizer.encode(text),
            text,
            opens=verdict.opens,
            opened=verdict.opened,
            start=verdict.start,
            labels=labels,
            closing=text[verdict.start + len(verdict.written or verdict.label) :],
            tokenizer=tokenizer,
        )
        num_read += place is not None
    listed = ", ".join(spelled)
    if num_read < len(with_texts):
        missing = len(with_texts) - num_read
        detail = f"{missing} of {len(with_texts)} examples: the tokens of the verdict do not spell its text ({listed})"
        return ModelFinding(name=name, is_ok=False, detail=detail)
    whole = sum(bool(ids) for ids in (await tokenizer.tokens_of(list(spelled))).values())
    detail = f"{listed}: spelled by the vocabulary in {num_read} examples; {whole} of {len(spelled)} are one token"
    return ModelFinding(name=name, is_ok=True, detail=detail)


def _verdict(format: DeclaredFormat, text: str, *, mode: Mode, num_responses: int) -> FoundVerdict | None:
    return format.find_verdict([text], mode=mode, labels=format.labels(mode, num_responses))
