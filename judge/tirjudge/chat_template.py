"""Chat templates of models: they turn a conversation into the text that is encoded.

A template is rendered as transformers renders it (`apply_chat_template`), without transformers. It is content of a
checkpoint, so it runs in Jinja's sandbox: it cannot reach Python objects, files or the environment. The sandbox does not
limit time and memory.

The rendered text already has every special token, such as the one at the beginning of a sequence. Encoding it adds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template, TemplateError, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from tirjudge.control_tokens import tag_literals
from tirjudge.errors import CheckpointError, TemplateFailed
from tirjudge.prompt_messages import Prompt, chat_of
from tirjudge.template_options import NO_THINKING, PROBE_TEXT, TemplateOptions, check_options

CHATML = resources.files("tirjudge").joinpath("chatml.jinja").read_text(encoding="utf-8")
"""Template of a checkpoint folder that has none."""

_PROBE = ({"role": "user", "content": PROBE_TEXT},)


class ChatTemplate:
    """A chat template with its options.

    Args:
        source: the template, in Jinja's language.
        special_tokens: special tokens that the template may use, by name, such as `bos_token`.
        kwargs: options of the template. None: `enable_thinking` is false if that changes the prompt; else none.
        origin: file or name of the template, for error messages.

    Attributes:
        source: the template.
        special_tokens: special tokens that the template may use, by name.
        kwargs: the options.

    Raises:
        CheckpointError: the template cannot be compiled or rendered, does not show the content of a message, or an
            option has a reserved name.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        kwargs: TemplateOptions | None = None,
        origin: str = "chat template",
    ) -> None:
        self.source = source
        self._origin = origin
        self.special_tokens = dict(special_tokens or {})
        try:
            self._template = _compiled(source)
        except TemplateSyntaxError as error:
            raise CheckpointError(f"{origin}: line {error.lineno}: {_in_one_line(error.message)}") from error
        except Exception as error:  # Python refuses, for instance, expressions that are nested too deeply
            raise CheckpointError(f"{origin}: {_in_one_line(error)}") from error
        self.kwargs = check_options(kwargs or {})
        self._reads_parts = False
        self._reads_parts = PROBE_TEXT not in self._rendered(kwargs=self.kwargs)
        if self._reads_parts and PROBE_TEXT not in self._rendered(kwargs=self.kwargs):
            raise CheckpointError(f"{origin}: the content of a user message does not appear in the prompt")
        if kwargs is None and self._rendered(kwargs=NO_THINKING) != self._rendered(kwargs={}):
            self.kwargs = dict(NO_THINKING)

    @classmethod
    def load(cls, folder: Path, *, kwargs: TemplateOptions | None = None) -> ChatTemplate:
        """Load the template of a checkpoint folder: `chat_template.jinja`, else `chat_template` in
        `tokenizer_config.json` (of several templates the one named `default`), else ChatML.

        Args:
            folder: checkpoint folder.
            kwargs: as in the constructor.

        Raises:
            CheckpointError: a file is broken, no template is named `default`, or as in the constructor.
        """
        config_file, file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        config = _json_object(config_file)
        special_tokens = _special_tokens_in(config)
        if "added_tokens_decoder" not in config:  # folders of older releases of transformers
            special_tokens |= _special_tokens_in(_json_object(folder / "special_tokens_map.json"))
        if file.exists():
            return cls(_text_of(file), special_tokens=special_tokens, kwargs=kwargs, origin=str(file))
        if (given := config.get("chat_template")) is not None:
            origin = f"{config_file}: chat_template"
            return cls(_default_of(given, origin=origin), special_tokens=special_tokens, kwargs=kwargs, origin=origin)
        return cls(CHATML, kwargs=kwargs, origin="ChatML")

    @classmethod
    def of_tokenizer(cls, tokenizer: Any, *, kwargs: TemplateOptions | None = None) -> ChatTemplate | None:
        """Return the template of a tokenizer of transformers; None: it has none in Jinja's language.

        Raises:
            CheckpointError: as in the constructor.
        """
        source = getattr(tokenizer, "chat_template", None)
        if isinstance(source, Mapping):
            source = source.get("default")
        if not isinstance(source, str):
            return None
        return cls(source, special_tokens=tokenizer.special_tokens_map, kwargs=kwargs)

    def render(self, messages: Iterable[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
        """Render a conversation.

        Args:
            messages: messages with `role` and `content`.
            add_generation_prompt: whether to append the start of the assistant's answer.

        Raises:
            CheckpointError: the template failed. A template may refuse a conversation, such as one with a system
                message.

        >>> ChatTemplate(CHATML).render([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        return self._rendered(messages, kwargs=self.kwargs, add_generation_prompt=add_generation_prompt)

    def render_prompt(self, prompt: Prompt) -> str:
        """Render a prompt up to the start of the answer.

        Raises:
            CheckpointError: the template failed.
        """
        return self.render(chat_of(prompt))

    def with_options(self, kwargs: TemplateOptions | None) -> ChatTemplate:
        """Return the template with other options.

        Raises:
            CheckpointError: the template cannot be rendered with them, or an option has a reserved name.
        """
        return ChatTemplate(self.source, special_tokens=self.special_tokens, kwargs=kwargs, origin=self._origin)

    @cached_property
    def tags(self) -> frozenset[str]:
        """Tag-shaped literals of the template, such as `<think>`, `<tool_call>` and `[INST]`, without tags of HTML."""
        lexed = _environment().lex(self.source)
        return frozenset(tag for _, kind, text in lexed if kind in ("data", "string") for tag in tag_literals(text))

    @property
    def is_harmony(self) -> bool:
        """Whether the model writes in channels, as gpt-oss does."""
        return "<|channel|>" in self.source

    def _rendered(
        self,
        messages: Iterable[Mapping[str, str]] = _PROBE,
        *,
        kwargs: TemplateOptions,
        add_generation_prompt: bool = True,
    ) -> str:
        try:
            return self._template.render(
                messages=[self._message(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **{**self.special_tokens, **kwargs},
            )
        except Exception as error:  # a template can raise any exception of an expression
            raise TemplateFailed(f"{self._origin}: {_in_one_line(error)}") from error

    def _message(self, message: Mapping[str, str]) -> dict[str, Any]:
        """Return a message in the form that the template reads. Templates of some models of images read only content
        that is a list of parts, and skip a string silently."""
        content = [{"type": "text", "text": message["content"]}] if self._reads_parts else message["content"]
        return {**message, "content": content}


def refuse_channels(*, origin: str) -> CheckpointError:
    """Return the error about a model that writes in channels, as gpt-oss does."""
    return CheckpointError(
        f"{origin}: the model writes in channels (the harmony format of gpt-oss). Only control tokens separate its "
        "thoughts from its answers, and its turns end before a program's output can follow, so its token ids cannot be "
        "continued; serve it with vLLM and judge through its chat route: "
        "--chat-url http://HOST:8000/v1 --chat-model NAME"
    )


def writes_channels(prompt: str) -> bool:
    """Whether a rendered prompt is that of a model that writes in channels. For servers that do not show their
    template."""
    return "<|start|>assistant" in prompt


# ---------------------------------------------------------------------------------------------------------------- folders


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: {_in_one_line(error)}") from error


def _json_object(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file; {} if it does not exist."""
    if not file.exists():
        return {}
    try:
        content = json.loads(_text_of(file))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: broken: {_in_one_line(error)}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file}: broken: not a JSON object")
    return content


def _default_of(given: Any, *, origin: str) -> str:
    """Return the only template, or the template named `default`."""
    if isinstance(given, str):
        return given
    if isinstance(given, Sequence):
        given = {one.get("name"): one.get("template") for one in given if isinstance(one, Mapping)}
    default = given.get("default") if isinstance(given, Mapping) else None
    if not isinstance(default, str):
        raise CheckpointError(f"{origin}: no template is named `default`; write one to chat_template.jinja")
    return default


def _special_tokens_in(config: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> text of the special tokens in a configuration of a tokenizer."""
    extra = config.get("extra_special_tokens")
    named = {name: token for name, token in config.items() if name.endswith("_token")}
    named |= extra if isinstance(extra, Mapping) else {}
    texts = {name: token.get("content") if isinstance(token, Mapping) else token for name, token in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _in_one_line(error: object) -> str:
    said = " ".join(str(error).split())[:300]
    return said or type(error).__name__


# ------------------------------------------------------------------------------------------------------------ environment


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    return _environment().from_string(source)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Return Jinja's environment with the settings, filters and functions that transformers gives to templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    functions: dict[str, Any] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    environment.globals.update(functions)
    return environment


class _Generation(Extension):
    """The block `{% generation %}`, which marks what the assistant wrote. It is rendered as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block = nodes.CallBlock(self.call_method("_content"), [], [], body)
        block.set_lineno(line)
        return block

    def _content(self, caller: Macro) -> str:
        return caller()


class _Dict:
    """`dict` without its attributes, which would lead out of the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Jinja's `namespace` without underscored attributes."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # like Jinja's, so that a template may name an attribute `self`
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"an attribute of a namespace may not begin with an underscore: {name!r}")


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own filter would escape HTML characters."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
