"""Chat templates: rendered as transformers renders them, and safe to open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.errors import CheckpointError
from tirjudge.model import bundled_checkpoint
from tirjudge.template_options import parse_options

USER = [{"role": "user", "content": "Which is <b>better</b>?\n A & B  "}]
CHAT = [*USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nA"}, {"role": "user", "content": "Sure?"}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

THINKING = """{%- for m in messages %}{{ m.role + ': ' + m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}{% endif %}"""


FAST = ("deepseek_r1_distill", "gemma3", "gptoss", "llama3_1", "phi3", "qwen3", "qwen3_5_think", "smolvlm")
"""Templates of TRL for the fast tests."""


def of_trl() -> list[Any]:
    """The chat templates in TRL's package as parameters of a test, without importing TRL."""
    found = find_spec("trl")
    if found is None or found.origin is None:
        return []
    paths = sorted((Path(found.origin).parent / "chat_templates").glob("*.jinja"))
    return [pytest.param(path, id=path.stem, marks=[] if path.stem in FAST else [pytest.mark.slow]) for path in paths]


@pytest.fixture(scope="module")
def reference() -> Callable[..., str]:
    """Renders with `apply_chat_template` of transformers."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models

    def render(source: str, messages: list[dict[str, str]], **kwargs: Any) -> str:
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.BPE()), chat_template=source, **TOKENS
        )
        return tokenizer.apply_chat_template(messages, tokenize=False, **kwargs)

    return render


@pytest.mark.parametrize("path", of_trl())
@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}, {"enable_thinking": True}], ids=str)
def test_real_templates_are_rendered_as_transformers_renders_them(
    path: Path, options: dict[str, Any], reference: Callable[..., str]
) -> None:
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source, special_tokens=TOKENS, kwargs=options)
    reads_parts = "llava" in path.stem or "idefics" in path.stem or "smolvlm" in path.stem
    for messages in (USER, CHAT):
        given = (
            [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages] if reads_parts else messages
        )
        for start in (True, False):
            expected = reference(source, given, add_generation_prompt=start, **options)
            assert template.render(messages, add_generation_prompt=start) == expected
            assert messages[-1]["content"].strip() in expected


FEATURES = {
    "filters": "{{ messages | tojson }}{{ {'b': '<&>', 'a': 'ü'} | tojson(indent=2, sort_keys=true) }}",
    "ascii": "{{ 'ü' | tojson(ensure_ascii=true, separators=(',', ':')) }}",
    "loop controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "blocks": "  {% if true %}\n  x\n  {% endif %}\n  y\n",
    "generation": "{% set ns = namespace(n=1) %}{% generation %}{% set ns.n = 2 %}{{ ns.n }}{% endgeneration %}{{ ns.n }}",
    "dict": "{% set d = dict(a=1) %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ dict.fromkeys(['x'], 0) }}",
    "namespace": "{% set ns = namespace({'found': false}, self=3) %}{% set ns.found = true %}{{ ns.found }}{{ ns.self }}",
    "date": "{{ strftime_now('%Y') }}",
    "tokens": "{{ bos_token }}{{ messages[0]['content'] | trim }}{{ eos_token }}{{ sep_token }}",
    "absent": "{% if tools is not none %}tools{% endif %}{% if documents is defined %}documents{% endif %}{{ nothing }}",
    "macros": "{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(messages[-1].content) }}",
}


@pytest.mark.parametrize("source", FEATURES.values(), ids=FEATURES)
def test_each_feature_of_the_environment_works_as_in_transformers(source: str, reference: Callable[..., str]) -> None:
    source += "{{ messages[-1].content }}"
    template = ChatTemplate(source, special_tokens=TOKENS, kwargs={})
    assert template.render(CHAT) == reference(source, CHAT, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("\n{% for m in messages %}", "line 2: Unexpected end of template"),
        ("{{ raise_exception('only\nsystem messages') }}", "only system messages"),
        ("{{ messages.nothing.at_all }}", "has no attribute 'nothing'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception.__globals__.keys() }}", "unsafe"),
        ("{{ 'no message' }}", "the content of a user message does not appear"),
        ("{% set ns = namespace(_secret=1) %}", "underscore"),
        ("{% set ns = namespace() %}{% set ns._secret = 1 %}", "underscore"),
        ("{% include 'judge.json' %}", "no loader"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"),
        ("{{ " + "(" * 5000 + " }}", "chat template: "),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_broken_or_hostile_template_is_refused_in_one_line(source: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(reason)) as raised:
        ChatTemplate(source)
    assert "\n" not in str(raised.value)


def test_thinking_is_off_by_default_where_the_template_has_the_option() -> None:
    assert ChatTemplate(THINKING).kwargs == {"enable_thinking": False}
    assert ChatTemplate(CHATML).kwargs == {}
    assert ChatTemplate(THINKING, kwargs={}).kwargs == {}
    assert ChatTemplate(THINKING).render_prompt("?") == "user: ?\nassistant:<think></think>"
    assert (
        ChatTemplate(THINKING).with_options({"enable_thinking": True}).render_prompt("?").endswith("assistant:<think>")
    )


def test_tags_are_the_tag_shaped_literals_of_the_template() -> None:
    source = "{% if 1<b>c %}<think>{% endif %}{{ '</think>' }}[INST] {{ x['ROLE'] }}<tool_call>{# <comment> #}< no >"
    template = ChatTemplate(source + CHATML, kwargs={"b": 2, "c": 1, "x": {}})
    assert template.tags == {"<think>", "</think>", "<tool_call>", "[INST]", "<|im_start|>", "<|im_end|>"}


@pytest.mark.parametrize("path", of_trl())
def test_only_gpt_oss_writes_in_channels(path: Path) -> None:
    template = ChatTemplate(path.read_text(encoding="utf-8"), special_tokens=TOKENS)
    assert template.is_harmony == path.stem.startswith("gptoss")


def test_files_of_a_checkpoint_in_their_order(tmp_path: Path) -> None:
    assert ChatTemplate.load(tmp_path).source == CHATML
    config = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "add_bos_token": True}
    several = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "{{ bos_token }}several {{ messages[0].content }}"},
    ]
    for given, expected in (
        (several, "<s>several ?"),
        ("{{ messages[0].content }}{{ eos_token }}{{ add_bos_token }}", "?</s>"),
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": given}))
        assert ChatTemplate.load(tmp_path).render_prompt("?") == expected
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}{{ bos_token }}{{ my_token }}\n")
    assert ChatTemplate.load(tmp_path).render_prompt("?") == "?<s>"
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"my_token": "!"}))
    assert ChatTemplate.load(tmp_path).render_prompt("?") == "?<s>!"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"chat_template": [{"name": "rag", "template": "x"}]}', "no template is named `default`"),
        ('{"chat_template": 3}', "no template is named `default`"),
        ("[]", "not a JSON object"),
        ("{", "broken"),
        ('{"chat_template": "{{ 1 / 0 }}"}', "division by zero"),
    ],
)
def test_a_broken_configuration_is_refused_with_its_file(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(CheckpointError, match=reason) as raised:
        ChatTemplate.load(tmp_path)
    assert str(tmp_path / "tokenizer_config.json") in str(raised.value)


def test_options_that_the_judge_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="messages, tools: set by the judge"):
        ChatTemplate(CHATML, kwargs={"tools": None, "messages": []})


@pytest.mark.parametrize("text", ["", "{", "[]", "enable_thinking=false", "null", '{"messages": 1}', "[" * 100_000])
def test_options_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="chat"):
        parse_options(text)


def test_the_bundled_judge_is_asked_as_it_was_trained() -> None:
    template = ChatTemplate.load(bundled_checkpoint())
    text = " Which?\n\n<|im_end|> {{ x }} ```python\n"
    assert template.render_prompt(text) == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert template.kwargs == {}
