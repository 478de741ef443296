"""Instructions of judge prompts that are the words of the served format.

Some formats of other judges have the prompts that clients send (MT-Bench, Arena-Hard). The instructions of such a prompt are
not a rubric, because the format shows them already.
"""

from __future__ import annotations

from functools import cache

from tirjudge.control_tokens import FAMILIES
from tirjudge.formats.base import Format
from tirjudge.formats.declared import DeclaredFormat, sample_request
from tirjudge.http.protocol import invalid, shown
from tirjudge.types import JudgeRequest
from tirjudge_server.openai.templates import recognise
from tirjudge_web.errors import Refused

ENOUGH_CHARS = 100_000
"""Maximum length of a text in a prompt that is rendered to see its words. The texts are shorter."""


@cache
def own_rubrics(format: Format) -> frozenset[str]:
    """Return the rubrics that `recognise` derives from the prompts of a format. Empty: it has no such prompts."""
    if not isinstance(format, DeclaredFormat):
        return frozenset()
    found: set[str] = set()
    for mode, part in format.file.modes.items():
        for prompt in part.prompt:
            request = sample_request(prompt, mode=mode)
            messages = format.render(
                request,
                order=range(len(request.responses)),
                tools=(),
                prompt_chars=ENOUGH_CHARS,
                response_chars=ENOUGH_CHARS,
                control_tokens=FAMILIES,
            )
            instruction = "\n".join(message.content for message in messages if message.role == "system")
            try:
                read = recognise(messages[-1].content, instruction=instruction)
            except Refused:  # a prompt with two readings is refused from clients, too
                continue
            if read is not None and read.fields.get("rubric"):
                found.add(read.fields["rubric"])
    return frozenset(found)


def check_rubric(request: JudgeRequest, *, format: Format, param: str) -> None:
    """Check that a format has a place for the instructions of a judge prompt.

    Args:
        request: the request that was read from the prompt.
        format: format of the judge.
        param: field of the body with the prompt.

    Raises:
        Refused: it has not.
    """
    refusal = format.traits.refusal(request)
    if request.rubric is None or refusal is None or not refusal.startswith("rubric:"):
        return
    reason = refusal.partition(", but ")[2].removesuffix("; remove it")
    message = (
        f"{param}: the prompt has instructions for the judge ({shown(request.rubric)}), but {reason}; send the prompt in the "
        "words of this format (`tirjudge formats show`), or the question alone with `responses` in `judge` of the body"
    )
    raise Refused(invalid(message, param=param, code="not_shown_by_format"))
