"""Generated training data do not change by accident: the same seeds give the same prompts, judgments and items.

If a change is intended, update the hashes. The bundled judge then no longer matches the generator of its training data.
"""

import hashlib
from itertools import islice
from random import Random

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.types import MODEL_MODES
from tirjudge_training.bundled.build import bundled_profile
from tirjudge_training.bundled.sft import draw_mixed, render_example
from tirjudge_training.synthetic.examples import Mixture, draw_examples, segments
from tirjudge_training.synthetic.items import generate_items
from tirjudge_training.synthetic.teacher_errors import TeacherErrors


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def test_synthetic_data_match_their_hashes() -> None:
    profile, chat = bundled_profile(), ChatTemplate(CHATML)
    drawn = [
        example
        for mode in MODEL_MODES
        for held_out in (False, True)
        for example in islice(
            draw_examples(mode, rng=Random(f"{mode}/{held_out}"), held_out=held_out, mixture=Mixture()), 60
        )
    ]
    errors = TeacherErrors(guesses=0.3, wrong_plans=0.3)
    drawn += islice(draw_mixed(rng=Random(1), mode_shares=(0.4, 0.35, 0.25), mixture=Mixture(), erring=errors), 60)
    items = [item for mode in MODEL_MODES for item in generate_items(mode, count=20, seed=3, mixture=Mixture())]
    assert {
        "prompts": digest(*(render_example(example, profile=profile, chat=chat) for example in drawn)),
        "judgments": digest(*(segment.text for example in drawn for segment in segments(example))),
        "items": digest(*(repr((item.id, item.prompt, item.responses, item.best, item.order)) for item in items)),
    } == {"prompts": "554713678a40f171", "judgments": "9203c1dd93f1dc39", "items": "1d18e4a9af90d318"}
