"""Render 20 rows with the code of the authors of other judges, and compare with the declared formats of this package.

    python benchmarks/authors_prompts.py CHECKOUTS --out tests/judge/other_formats/prompts.json

CHECKOUTS is a folder with git repositories, OWNER/NAME or OWNER+NAME/repo for each. Each format file names its repository
and commit; clone them with `git clone https://github.com/OWNER/NAME`. The authors' code is read at that commit and runs here,
so read it before you run it. Libraries that it imports but does not need for a prompt (torch, vLLM, clients of APIs) are
replaced by stand-ins.

The output has one SHA-256 per format, mode and optional sections, over the messages of all rows. It does not contain
their text. The tests compare the declared formats with it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import typer
from authors_code import checked_out, imported, module_of, package_of, reward_bench_module

from tirjudge.control_tokens import FAMILIES
from tirjudge.formats import format_named

ROWS = Path(__file__).parents[1] / "tests" / "judge" / "other_formats" / "rows.json"
"""Rows with odd texts: other scripts, braces, dollar signs, empty lines, control tokens, long texts."""

Message = dict[str, str]
Render = Callable[[Mapping[str, Any]], Sequence[Message]]


class CapturedError(Exception):
    """Carries the prompt out of the authors' code where it would call the model."""


def capture(*prompt: Any, **named: Any) -> Any:
    """Take the place of a call of a model.

    Raises:
        CapturedError: always.
    """
    raise CapturedError(prompt, named)


def chat(system: str | None, user: str) -> list[Message]:
    """Return a system message, if there is one, and a user message."""
    first = [{"role": "system", "content": system}] if system is not None else []
    return [*first, {"role": "user", "content": user}]


def turns(row: Mapping[str, Any], index: int) -> list[Message]:
    """Return the conversation with one response."""
    return [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["responses"][index]}]


# What the authors' code makes of a row: key -> function. A key is NAME MODE, with the sections of the request.


def fastchat(root: Path) -> dict[str, Render]:
    sys.modules["fastchat.model.model_adapter"] = adapter = ModuleType("fastchat.model.model_adapter")
    conversations = imported("fastchat.conversation")
    vars(adapter).update(
        get_conversation_template=lambda model: conversations.get_conv_template("chatgpt"),
        OPENAI_MODEL_LIST=("gpt-4",),
        ANTHROPIC_MODEL_LIST=(),
    )
    common = imported("fastchat.llm_judge.common")
    common.chat_completion_openai = capture
    prompts = common.load_judge_prompts(str(root / "fastchat/llm_judge/data/judge_prompts.jsonl"))

    def answer(text: str) -> dict[str, Any]:
        return {"choices": [{"turns": [text]}]}

    def render(row: Mapping[str, Any], *, name: str, run: Callable[..., Any], number: int) -> list[Message]:
        reference = answer(row["reference"]) if "math" in name else None
        judge = common.Judge("gpt-4", prompts[name], ref_based=reference is not None)
        answers = [answer(text) for text in row["responses"][:number]]
        try:
            run({"turns": [row["prompt"]]}, *answers, judge, reference)
        except CapturedError as error:
            return error.args[0][1].to_openai_api_messages()
        raise AssertionError("no model was called")

    def of(name: str) -> Render:
        run, number = (common.run_judge_pair, 2) if name.startswith("pair") else (common.run_judge_single, 1)
        return lambda row: render(row, name=name, run=run, number=number)

    return {
        "mt-bench-pair pairwise": of("pair-v2"),
        "mt-bench-pair pairwise reference": of("pair-math-v1"),
        "mt-bench-single pointwise": of("single-v1"),
        "mt-bench-single pointwise reference": of("single-math-v1"),
    }


def arena_hard(root: Path) -> dict[str, Render]:
    module = imported("gen_judgment")
    module.get_endpoint = lambda endpoints: None
    module.registered_api_completion = {"captured": capture}
    settings = (root / "config/arena-hard-v2.0.yaml").read_text(encoding="utf-8")
    line = next(line for line in settings.splitlines() if line.startswith("prompt_template: "))
    configs = {"prompt_template": json.loads(line.removeprefix("prompt_template: ")), "temperature": 0, "max_tokens": 1}

    def answer(text: str) -> dict[str, Any]:
        return {"messages": [{"content": {"answer": text}}]}

    def of(category: str) -> Render:
        def render(row: Mapping[str, Any]) -> list[Message]:
            first, second = map(answer, row["responses"][:2])
            question = {"prompt": row["prompt"], "category": category}
            try:
                module.pairwise_judgment(
                    question, first, second, None, configs, {"endpoints": None, "api_type": "captured"}
                )
            except CapturedError as error:
                return error.args[1]["messages"]
            raise AssertionError("no model was called")

        return render

    return {"arena-hard pairwise": of("hard_prompt"), "arena-hard-creative pairwise": of("creative_writing")}


def prometheus(root: Path) -> dict[str, Render]:
    sys.modules["fastchat"] = ModuleType("fastchat")
    sys.modules["fastchat.conversation"] = conversation = ModuleType("fastchat.conversation")
    conversation.get_conv_template = None  # type: ignore[attr-defined]
    package_of("prometheus_eval", root / "libs/prometheus-eval/prometheus_eval")
    judge = imported("prometheus_eval.judge")
    prompts = imported("prometheus_eval.prompts")
    judge.batch_completions_with_retries = capture

    class Model:
        validate_mockllm = True

    def of(kind: str, *, reference: bool, rubric: bool) -> Render:
        template = prompts.get_prompt_template(kind, reference)

        def render(row: Mapping[str, Any]) -> list[Message]:
            evaluator = judge.PrometheusEval(Model(), **{f"{kind}_grade_template": template})
            names = ("response",) if kind == "absolute" else ("response_A", "response_B")
            responses = dict(zip(names, row["responses"], strict=False))
            try:
                getattr(evaluator, f"single_{kind}_grade")(
                    instruction=row["prompt"],
                    rubric=row["rubric"] if rubric else prompts.HELPFULNESS_RUBRIC,
                    reference_answer=row["reference"] or "\0" if reference else None,
                    **responses,
                )
            except CapturedError as error:
                messages = error.args[0][1][0]
                return [{**each, "content": each["content"].replace("\0", "")} for each in messages]
            raise AssertionError("no model was called")

        return render

    return {
        f"prometheus-2 {mode}{' reference' * reference}{' rubric' * rubric}": of(
            kind, reference=reference, rubric=rubric
        )
        for mode, kind in (("pointwise", "absolute"), ("pairwise", "relative"))
        for reference in (False, True)
        for rubric in (False, True)
    }


def selene(root: Path) -> dict[str, Render]:
    def template(name: str) -> str:
        text = (root / "prompt-templates" / f"{name}.yaml").read_text(encoding="utf-8")
        lines = text.removeprefix("user_template: |-\n").split("\n")
        return "\n".join(line.removeprefix("  ") for line in lines)

    def of(name: str, *, reference: bool = False) -> Render:
        whole = template(name)
        start = whole.index("[{rubric_objective}]")
        after = whole.find("\n\nReference answer:", start)
        given = whole[start : len(whole) if after < 0 else after]

        def render(row: Mapping[str, Any]) -> list[Message]:
            # The rubric of a request has all lines of the rubric of the template.
            text = whole.replace(given, "{rubric}")
            filled = text.format(
                user_input=row["prompt"],
                assistant_response=row["responses"][0],
                assistant_response_a=row["responses"][0],
                assistant_response_b=row["responses"][1],
                reference_response=row["reference"],
                rubric=row["rubric"],
            )
            return chat(None, filled)

        return render

    return {
        "selene-mini pointwise rubric": of("absolute-scoring"),
        "selene-mini pointwise reference rubric": of("absolute-scoring-with-reference"),
        "selene-mini pairwise rubric": of("pairwise"),
        "selene-mini-yes-no pointwise rubric": of("classification"),
        "selene-mini-yes-no pointwise reference rubric": of("classification-with-reference"),
    }


def compass_judger(root: Path) -> dict[str, Render]:
    text = (root / "README.md").read_text(encoding="utf-8").partition('prompt = """')[2].partition('"""')[0]
    before, rest = text.split("{question}")
    between, rest = rest.split("{answerA}")
    last, after = rest.split("{answerB}")

    def render(row: Mapping[str, Any]) -> list[Message]:
        first, second = row["responses"][:2]
        return chat(None, f"{before}{row['prompt']}{between}{first}{last}{second}{after}")

    return {"compassjudger-2 pairwise": render}


def rm_r1(root: Path) -> dict[str, Render]:
    module = reward_bench_module(root / "eval/RM-Bench/rewardbench", "generative")

    def of(modifier: str) -> Render:
        def render(row: Mapping[str, Any]) -> list[Message]:
            system, user = module.format_judge_answers(
                row["prompt"], turns(row, 0), turns(row, 1), model_modifier=modifier
            )
            return chat(system or None, user)

        return render

    return {"rm-r1-instruct pairwise": of("RM-R1-Instruct"), "rm-r1-reasoning pairwise": of("RM-R1-Reasoning")}


def reward_bench(root: Path) -> dict[str, Render]:
    first = reward_bench_module(root / "rewardbench", "generative")
    second = reward_bench_module(root / "rewardbench", "generative_v2")
    second.chat_completion = capture

    def ranking(row: Mapping[str, Any]) -> list[Message]:
        system, user = second.format_judge_answers(row["prompt"], *(turns(row, index) for index in range(4)))
        return second.build_openai_messages(system, user)

    def rating(row: Mapping[str, Any], *, is_ties: bool) -> list[Message]:
        # The authors' function catches all exceptions, so the prompt is taken from the arguments of the call.
        taken: list[list[Message]] = []
        second.chat_completion = lambda *, messages, **others: taken.append(messages)
        second.get_single_rating(row["prompt"], row["responses"][0], second.OPENAI_MODEL_LIST[0], is_ties=is_ties)
        return taken[0]

    return {
        "reward-bench pairwise": lambda row: chat(
            *first.format_judge_answers(row["prompt"], turns(row, 0), turns(row, 1))
        ),
        "reward-bench-2 listwise": ranking,
        "reward-bench-2 pointwise": lambda row: rating(row, is_ties=False),
        "reward-bench-2-ties pointwise": lambda row: rating(row, is_ties=True),
    }


def code_judge_bench(root: Path) -> dict[str, Render]:
    for name in ("src", "src.models", "src.tasks"):
        package_of(name, root / name.replace(".", "/"))
    pairwise = imported("src.models.pairwise").PairwiseModel
    task = imported("src.tasks.codegen").CodeGenTask

    def render(row: Mapping[str, Any]) -> list[Message]:
        first, second = row["responses"][:2]
        shown = task(question_content=row["prompt"], pos_response=first, neg_response=second)
        return chat(None, shown.get_prompt(pairwise.JUDGE_PROMPT))

    return {"codejudgebench pairwise": render}


def judge_lm(root: Path) -> dict[str, Render]:
    for name in ("judgelm", "judgelm.llm_judge"):
        package_of(name, root / name.replace(".", "/"))
    sys.modules["judgelm.model"] = model = ModuleType("judgelm.model")
    model.load_model = lambda *given, **named: (None, capture)  # type: ignore[attr-defined]
    common = imported("judgelm.llm_judge.common")
    conversation = common.Conversation
    copy = conversation.copy
    conversation.copy = lambda self, answer_num=None: copy(self, answer_num)  # the caller's release has no argument
    module = imported("judgelm.llm_judge.gen_model_judgement")

    def render(row: Mapping[str, Any], *, reference: bool) -> list[Message]:
        first, second = row["responses"][:2]
        question = {"question_body": row["prompt"], "answer1_body": first, "answer2_body": second}
        references = [{"reference": {"text": row["reference"]}}] if reference else None
        run = getattr(module.get_model_answers, "__wrapped__", module.get_model_answers)
        try:
            run("", "", [question], "", 1, 1, None, 0.0, False, references, False)
        except CapturedError as error:
            return chat(None, error.args[0][0][0])
        raise AssertionError("no model was called")

    return {
        "judgelm pairwise": lambda row: render(row, reference=False),
        "judgelm pairwise reference": lambda row: render(row, reference=True),
    }


def panda_lm(root: Path) -> dict[str, Render]:
    module = module_of(root / "pandalm/utils/pandalm_inference.py")
    source = (root / "pandalm/utils/pandalm_inference.py").read_text(encoding="utf-8")
    provider = object.__new__(module.PandaLMBatchInferenceProvider)
    provider.pattern = re.compile(
        source.partition("self.pattern = re.compile(")[2].partition('r"')[2].partition('"')[0]
    )

    def render(row: Mapping[str, Any]) -> list[Message]:
        first, second = row["responses"][:2]
        return chat(None, provider.build_pandalm_prompt(row["prompt"], "", first, second))

    return {"pandalm pairwise": render}


def reward_anything(root: Path) -> dict[str, Render]:
    package_of("rewardanything", root / "rewardanything")
    module = imported("rewardanything.processing")

    def of(number: int) -> Render:
        def render(row: Mapping[str, Any]) -> list[Message]:
            responses = {f"model-{index + 1}": row["responses"][index] for index in range(number)}
            return module.prepare_chat_messages(row["rubric"], row["prompt"], responses, mask_responses=False)[0]

        return render

    shown = {"pointwise": 1, "pairwise": 2, "listwise": 4}
    return {f"rewardanything {mode} rubric": of(number) for mode, number in shown.items()}


def genrm(root: Path) -> dict[str, Render]:
    module = module_of(root / "responses_api_models/genrm_model/app.py")

    class Base:
        def _preprocess_chat_completion_create_params(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
            return body

    class Model(module.GenRMModelMixin, Base):
        config = SimpleNamespace(supports_principle_role=True)

    def of(*, principle: bool) -> Render:
        def render(row: Mapping[str, Any]) -> list[Message]:
            first, second = row["responses"][:2]
            metadata = {"response_1": first, "response_2": second} | ({"principle": row["rubric"]} if principle else {})
            body = {"messages": [{"role": "user", "content": row["prompt"]}], "metadata": metadata}
            return Model()._preprocess_chat_completion_create_params(None, body)["messages"]

        return render

    return {"nemotron-genrm pairwise": of(principle=False), "nemotron-genrm pairwise rubric": of(principle=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Authors:
    """The code of the authors of some formats."""

    format: str
    """A format whose file names the repository and the commit."""
    paths: tuple[str, ...]
    """Paths to unpack."""
    renders: Callable[[Path], dict[str, Render]]
    """Returns what the unpacked code makes of a row, for each key."""


AUTHORS = (
    Authors(format="mt-bench-pair", paths=("fastchat",), renders=fastchat),
    Authors(format="arena-hard", paths=("gen_judgment.py", "utils", "config"), renders=arena_hard),
    Authors(format="prometheus-2", paths=("libs/prometheus-eval/prometheus_eval",), renders=prometheus),
    Authors(format="selene-mini", paths=("prompt-templates",), renders=selene),
    Authors(format="compassjudger-2", paths=("README.md",), renders=compass_judger),
    Authors(format="rm-r1-instruct", paths=("eval/RM-Bench/rewardbench",), renders=rm_r1),
    Authors(format="reward-bench", paths=("rewardbench",), renders=reward_bench),
    Authors(format="codejudgebench", paths=("src",), renders=code_judge_bench),
    Authors(format="judgelm", paths=("judgelm",), renders=judge_lm),
    Authors(format="pandalm", paths=("pandalm/utils",), renders=panda_lm),
    Authors(format="rewardanything", paths=("rewardanything",), renders=reward_anything),
    Authors(format="nemotron-genrm", paths=("responses_api_models/genrm_model",), renders=genrm),
)


def digest(messages: Sequence[Sequence[Message]]) -> str:
    """Return the SHA-256 of the messages of all rows."""
    plain = [[[each["role"], each["content"]] for each in row] for row in messages]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode()).hexdigest()


def broken(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the control tokens of all families broken, as the declared formats show it."""
    shown = FAMILIES.served.broken
    return {name: list(map(shown, value)) if isinstance(value, list) else shown(value) for name, value in row.items()}


def rendered(checkouts: Path, authors: Authors, rows: Sequence[Mapping[str, Any]], *, source: Any) -> dict[str, Any]:
    """Return key -> messages of each row, from the authors' code."""
    with checked_out(checkouts, source.repository, source.commit, *authors.paths) as root:
        return {
            key: [[dict(message) for message in render(row)] for row in rows]
            for key, render in authors.renders(root).items()
        }


def main(
    checkouts: Annotated[Path, typer.Argument(exists=True, help="Folder with the repositories of the authors.")],
    out: Annotated[Path | None, typer.Option(help="File for the hashes. Default: print them.")] = None,
) -> None:
    """Run the authors' code on the rows, and write a hash for each format, mode and section."""
    rows = [broken(row) for row in json.loads(ROWS.read_text(encoding="utf-8"))]
    hashes: dict[str, str] = {}
    for authors in AUTHORS:
        source = format_named(authors.format).file.source  # type: ignore[attr-defined]
        for key, messages in rendered(checkouts, authors, rows, source=source).items():
            hashes[key] = digest(messages)
            print(f"{hashes[key]}  {key}", file=sys.stderr)
    text = json.dumps(hashes, indent=1) + "\n"
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
