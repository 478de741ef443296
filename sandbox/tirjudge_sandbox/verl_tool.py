"""verl-tool's `POST /get_observation`: find the program in a model's output, run it, and answer as verl-tool's server
does.

The client reads `observations[0]` for any status of the response. A failure of the sandbox is therefore reported as by
that server: an empty observation with a field `error`, `valid` false and `done` true. Such a response cannot be
mistaken for a program's output.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, model_validator

from tirjudge.errors import SandboxBusy, SandboxUnavailable
from tirjudge.types import ExecResult, Received, Text
from tirjudge_sandbox.cost import shared_output
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.service import SandboxService

GET_OBSERVATION_PATH = "/get_observation"

TIMEOUT_S = 10.0
"""Time limit of a program, seconds, as in verl-tool."""

PATIENCE_S = 30.0
"""Maximum seconds to wait for room in a full queue. The client itself does not retry."""

_PYTHON_TAG = re.compile(r"<python>")
_PYTHON_FENCE = re.compile(r"```\n?python")
_INPUT_FENCE = re.compile(r"```input\n")


def _as_list(value: Any) -> Any:
    """Accept a single id: the client sends one to end a trajectory."""
    return [value] if isinstance(value, str | int) else value


class ObservationRequest(Received):
    """One action per trajectory. Other fields, such as `is_last_step`, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    trajectory_ids: Annotated[list[Text], BeforeValidator(_as_list)]
    actions: list[Text]
    """Output of the model in each trajectory."""
    extra_fields: list[dict[str, Any] | None] | None = None
    """Additional fields of each trajectory, of which `stdin` and `finish` are used."""
    finish: list[bool] | None = None
    """Whether each trajectory ends, so that its action is not run."""

    @model_validator(mode="after")
    def _lists_are_of_one_length(self) -> ObservationRequest:
        for name in ("actions", "extra_fields", "finish"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.trajectory_ids):
                raise ValueError(f"{name}: {len(given)} given for {len(self.trajectory_ids)} trajectory_ids")
        return self


async def observe(asked: ObservationRequest, *, service: SandboxService) -> dict[str, Any]:
    """Run the programs of a batch of actions and return the response body.

    Raises:
        Refused: 413, there are too many actions; or see `SandboxService.execute`.
        ShuttingDown: see `SandboxService.execute`.
    """
    arrived = time.perf_counter()
    limits = shared_output(
        service.capped(time_s=TIMEOUT_S, memory_mb=None),
        num_programs=len(asked.actions),
        most=service.max_answer_bytes,
    )
    works = [
        partial(
            _observe_one,
            action,
            extra=(asked.extra_fields[number] if asked.extra_fields else None) or {},
            finishes=bool(asked.finish and asked.finish[number]),
            limits=limits,
            service=service,
        )
        for number, action in enumerate(asked.actions)
    ]
    seen = await service.side_by_side(works)
    return {
        "observations": [observation for observation, _, _, _ in seen],
        "dones": [done for _, done, _, _ in seen],
        "valids": [valid for _, _, valid, _ in seen],
        "processing_time_ms": round(1000 * (time.perf_counter() - arrived), 3),
        "queue_time_ms": round(1000 * max((queue_s for *_, queue_s in seen), default=0.0), 3),
    }


async def _observe_one(
    action: str, *, extra: dict[str, Any], finishes: bool, limits: Limits, service: SandboxService
) -> tuple[str | dict[str, str], bool, bool, float]:
    """Return observation, done, valid, and the seconds that the program waited for a slot."""
    if finishes or extra.get("finish"):
        return "", True, True, 0.0
    code = find_program(action)
    if code is None:
        return "", False, False, 0.0
    try:
        result = await _run_patiently(code, stdin=find_stdin(action, extra=extra), limits=limits, service=service)
    except SandboxUnavailable as error:
        return {"obs": "", "error": str(error)}, True, False, 0.0
    return framed(_output(result), action=action), False, True, result.queue_s


async def _run_patiently(code: str, *, stdin: str, limits: Limits, service: SandboxService) -> ExecResult:
    """Run a program. If the queue is full, retry for up to `PATIENCE_S`."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await service.execute(code, stdin=stdin, limits=limits)
        except SandboxBusy as error:
            if time.monotonic() + error.retry_after_s > give_up_at:
                raise
            await asyncio.sleep(error.retry_after_s)


def find_program(action: str) -> str | None:
    """Return the concatenated programs of an action. None: it has no program."""
    for opening, closing in ((_PYTHON_TAG, "</python>"), (_PYTHON_FENCE, "```")):
        if blocks := list(_between(opening, closing, text=action)):
            return "\n".join(block.strip() for block in blocks)
    return None


def find_stdin(action: str, *, extra: dict[str, Any]) -> str:
    """Return a program's standard input: the first input block of the action. Without one, the field `stdin`."""
    found = next(_between(_INPUT_FENCE, "\n```", text=action), None)
    return str(extra.get("stdin") or "") if found is None else found.strip()


def _between(opening: re.Pattern[str], closing: str, *, text: str) -> Iterator[str]:
    """Yield the texts between each opening delimiter and the next closing delimiter, in linear time.

    The regular expression `opening(.*?)closing` takes quadratic time if many opening delimiters are never closed.
    """
    start = opening.search(text)
    while start and (end := text.find(closing, start.end())) >= 0:
        yield text[start.end() : end]
        start = opening.search(text, end + len(closing))


def _output(result: ExecResult) -> str:
    """Return the text that verl-tool shows: both streams, and the error line unless the standard error contains it."""
    error = result.error if result.error is not None and result.error not in result.stderr else ""
    return "\n".join(part for part in (result.stdout, result.stderr, error) if part).strip(" \n")


def framed(output: str, *, action: str) -> str:
    """Return the output inside the delimiters (fence or tags) that the action uses."""
    fence, tags = f"\n```output\n{output}\n```\n", f"\n<output>\n{output}\n</output>\n"
    if action.endswith("```output"):
        return f"\n{output}\n```\n"
    if action.endswith("<output>"):
        return f"\n{output}\n</output>\n"
    if action.endswith("</tool_call>"):
        return fence
    if "</python>" in action:
        return tags
    if "```python" in action or action.rstrip(" \n").endswith("```"):
        return fence if action.count("```") % 2 == 0 else f"output\n{output}\n```\n"
    return f"\n{output}\n"
