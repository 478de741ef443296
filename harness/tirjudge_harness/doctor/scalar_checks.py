"""Checks of a scalar reward model: raw scores, the token at the beginning of a sequence, and the order of plain answers."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.concurrency import map_concurrently
from tirjudge.engines.base import Engine
from tirjudge.engines.scalar import MAX_CONCURRENCY, ReadText, ScalarEngine, conversation
from tirjudge_harness.doctor.findings import ModelFinding

PLAIN_PAIRS: tuple[tuple[str, str, str], ...] = (
    ("What is the capital of France?", "The capital of France is Paris.", "The capital of France is a potato."),
    ("What is 2 + 2?", "2 + 2 is 4.", "2 + 2 is 917."),
    ("Write one polite sentence that declines an invitation.",
     "Thank you for the invitation, but I cannot come on Friday.", "fgh fgh qq 7 7 7 zz"),
    ("How many days does a week have?", "A week has seven days.", "I do not care about weeks."),
    ("Explain in one sentence why the sky is blue.",
     "Air scatters blue light more than red light, so blue light reaches us from all directions.",
     "The sky is blue because the sky the sky the sky the sky the sky."),
    ("Translate the French word 'chat' into English.", "The English word is 'cat'.", "The English word is 'umbrella'."),
    ("Name three fruits.", "Apple, pear and cherry.", "Hammer, nail and saw."),
    ("Which planet do we live on?", "We live on Earth.", "We live on the Moon of Jupiter, as everybody knows."),
    ("Write the numbers from 1 to 5.", "1, 2, 3, 4, 5", "5, 5, 1, 9"),
    ("How do I boil an egg?", "Put the egg into boiling water for eight minutes, then cool it in cold water.",
     "Eggs."),
    ("What color do you get if you mix blue and yellow paint?", "You get green.", "You get loud."),
    ("Write a Python expression for the length of the list x.", "len(x)", "x is a list, lists are long, goodbye"),
)  # fmt: skip
"""Question, a plainly better answer, a plainly worse answer."""

MIN_ORDERED = 10
"""Minimum number of pairs whose better answer has the higher score. A model that guesses reaches it in 2 of 100 cases."""


async def scalar_findings(engine: Engine) -> list[ModelFinding]:
    """Return the findings about a scalar reward model.

    Raises:
        TirjudgeError: the model cannot be reached, or the template refuses a conversation of a question and an answer.
    """
    works = (engine.score(question, answer) for question, *answers in PLAIN_PAIRS for answer in answers)
    scores = [each.value for each in await map_concurrently(works, num_at_once=MAX_CONCURRENCY)]
    first = conversation(*PLAIN_PAIRS[0][:2])
    tells = isinstance(engine, ScalarEngine)  # an engine of another package may not tell more than scores
    return [
        raw_finding(scores, activated=await engine.activated_score(first) if tells else None),
        beginning_finding(await engine.read_text(first) if tells else None),
        order_finding(scores[::2], scores[1::2]),
    ]


def raw_finding(scores: Sequence[float], *, activated: float | None) -> ModelFinding:
    """Return whether scores are the outputs of the model, without an activation function.

    Args:
        scores: scores of different texts.
        activated: score of the first text after the activation function of the server. None: the server has none.
    """
    low, high = min(scores), max(scores)
    found = f"{low:.4g} to {high:.4g}"
    if low < 0 or high > 1:
        return ModelFinding(name="raw scores", is_ok=True, detail=f"{found}; an activation function gives 0 to 1")
    if activated is None:
        detail = f"{found}; the server may apply an activation function, which gives 0 to 1"
        return ModelFinding(name="raw scores", is_ok=None, detail=detail)
    if activated == scores[0]:
        detail = (
            f"{found}, the same with use_activation: the server seems to apply an activation function such as a sigmoid"
        )
        return ModelFinding(name="raw scores", is_ok=False, detail=detail)
    return ModelFinding(name="raw scores", is_ok=True, detail=f"{found}; with the activation function they differ")


def beginning_finding(read: ReadText | None) -> ModelFinding:
    """Return whether the token at the beginning of a sequence is written once."""
    name = "beginning"
    if read is None:
        return ModelFinding(name=name, is_ok=None, detail="the ids of a text are not known")
    ids = list(read.token_ids)
    if len(ids) > 1 and ids[0] == ids[1]:
        return ModelFinding(name=name, is_ok=False, detail=f"the first token ({ids[0]}) is written twice")
    if read.bos_id is None:
        return ModelFinding(name=name, is_ok=True, detail="the tokenizer adds no token")
    if ids[:1] != [read.bos_id]:
        detail = f"the token {read.bos_id} is missing: neither the template nor the tokenizer writes it"
        return ModelFinding(name=name, is_ok=False, detail=detail)
    return ModelFinding(name=name, is_ok=True, detail=f"the token {read.bos_id} is written once")


def order_finding(better: Sequence[float], worse: Sequence[float]) -> ModelFinding:
    """Return whether plainly better answers have higher scores than plainly worse ones."""
    num = sum(high > low for high, low in zip(better, worse, strict=True))
    detail = f"{num} of {len(better)} plainly better answers have the higher score"
    if num >= MIN_ORDERED:
        return ModelFinding(name="order", is_ok=True, detail=detail)
    needed = f"at least {MIN_ORDERED} are needed: the model, its template or the sign of its scores is wrong"
    return ModelFinding(name="order", is_ok=False, detail=f"{detail}; {needed}")
