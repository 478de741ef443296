"""A prompt has the text and the ids that transformers gives it, with the real tokenizer and template of each family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.families.models import Families, each_family, trl_template, trl_templates
from tests.judgments import build_request
from tirjudge.chat_template import ChatTemplate
from tirjudge.control_tokens import NONE
from tirjudge.formats import FORMATS, format_named
from tirjudge.types import MODEL_MODES, Mode

transformers = pytest.importorskip("transformers")

Reference = Callable[[str], Any]
"""Returns the tokenizer of a family as transformers loads it."""

OPTIONS: dict[str, dict[str, Any] | None] = {
    "default": None,
    "none": {},
    "thinking": {"enable_thinking": True},
    "no_thinking": {"enable_thinking": False},
}

CONTENTS = (
    "Hi",
    "  padded \n\n",
    "\n\n\nbelow",
    "e\u0301 and \u00e9, \u212b, 判断, 👩‍👩‍👧, \u200b\ufeff",
    "{{ bos_token }} {% raw %} { } \\n &lt;&amp;",
    "```python\nprint('</think>')\n```\n<tool_response>x</tool_response>",
)


@pytest.fixture(scope="session")
def reference(families: Families) -> Reference:
    loaded: dict[str, Any] = {}

    def load(family: str) -> Any:
        if family not in loaded:
            loaded[family] = transformers.AutoTokenizer.from_pretrained(families.folder(family))
        return loaded[family]

    return load


def judge_prompts() -> list[str]:
    """Whole prompts of every format and mode."""
    prompts = []
    for name in sorted(FORMATS):
        for mode in MODEL_MODES:
            responses = ["Paris \n"] if mode is Mode.POINTWISE else ["Paris \n", "Rome"]
            prompts.append(
                format_named(name).render(
                    build_request("Capital of France?", responses, mode=mode),
                    order=range(len(responses)),
                    tools=(),
                    prompt_chars=1000,
                    response_chars=1000,
                    control_tokens=NONE,
                )
            )
    return prompts


def check(template: ChatTemplate, reference: Any, content: str, *, encode: Callable[[str], list[int]]) -> list[int]:
    """Compare the prompt with that of transformers, and return its ids."""
    messages = [{"role": "user", "content": content}]
    for start in (True, False):
        given = {"add_generation_prompt": start, "chat_template": template.source, **template.kwargs}
        expected = reference.apply_chat_template(messages, tokenize=False, **given)
        expected_ids = reference.apply_chat_template(messages, tokenize=True, return_dict=False, **given)
        shown = template.render(messages, add_generation_prompt=start)
        assert shown == expected
        assert encode(shown) == list(expected_ids)
    return encode(template.render_prompt(content))


@each_family
@pytest.mark.parametrize("options", OPTIONS)
async def test_a_prompt_is_rendered_and_encoded_as_in_transformers(
    options: str, family: str, families: Families, reference: Reference
) -> None:
    vocabulary, tokenizer = families.vocabulary(family), families.tokenizer(family)
    template = tokenizer.template.with_options(OPTIONS[options])
    for content in [*CONTENTS, *judge_prompts()]:
        ids = check(template, reference(family), content, encode=tokenizer.encode_now)
        if vocabulary.bos is not None:
            bos = vocabulary.special[vocabulary.bos]
            assert (ids[0], ids.count(bos)) == (bos, 1)
        if options == "default":
            assert await tokenizer.encode_prompt(content) == ids


@pytest.mark.slow
def test_thinking_is_switched_off_by_default(families: Families) -> None:
    tokenizer = families.tokenizer("qwen3")
    off = tokenizer.decode(tokenizer.encode_now(tokenizer.template.render_prompt("Hi")))
    assert off == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    on = tokenizer.template.with_options({"enable_thinking": True})
    assert on.render_prompt("Hi") == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for prefix, family in (("qwen", "qwen3"), ("llama3", "llama3")) for name in trl_templates(prefix)],
)
def test_every_template_of_a_family_is_encoded_as_in_transformers(
    name: str, family: str, options: str, families: Families, reference: Reference
) -> None:
    tokenizer = families.tokenizer(family)
    special = {"bos_token": families.vocabulary(family).bos, "eos_token": families.vocabulary(family).eos}
    template = ChatTemplate(
        trl_template(name),
        special_tokens={key: token for key, token in special.items() if token is not None},
        kwargs=OPTIONS[options],
    )
    for content in CONTENTS:
        check(template, reference(family), content, encode=tokenizer.encode_now)


def test_many_templates_are_compared() -> None:
    assert len(trl_templates("qwen")) >= 10
    assert len(trl_templates("llama3")) >= 3
