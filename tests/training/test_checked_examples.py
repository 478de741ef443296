"""Training examples of the bundled judge's second generation: prompts, drawn outcomes, tokens, and resumption."""

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tirjudge.errors import CheckpointError
from tirjudge.formats.tirjudge_2 import FORMAT
from tirjudge.types import MODEL_MODES, Mode
from tirjudge_training.bundled.build import (
    EMBEDDING,
    MODE_DISTANCE,
    continuing,
    mode_tokens,
    second_generation,
    second_profile,
    similar_embeddings,
    train_bundled,
    weights_of_parent,
)
from tirjudge_training.bundled.checked import (
    CheckedExample,
    CheckedShares,
    drawn_example,
    frozen_texts,
    judgment,
    known_checks,
    with_errors,
)
from tirjudge_training.bundled.sft import (
    CONSTANT_STAGES,
    BundledRecipe,
    StepReport,
    batches_for_steps,
    last_stage,
    make_shard,
    stage_folder,
    stages_of,
)
from tirjudge_training.bundled.tokenizer import BLANK, train_copying_tokenizer
from tirjudge_training.bundled.vocabulary import TrainedVocabulary
from tirjudge_training.instructions.notation import NAMES
from tirjudge_training.instructions.programs import program
from tirjudge_training.instructions.tool_prompts import EXAMPLES
from tirjudge_training.synthetic.programs import run_trusted
from tirjudge_training.synthetic.teacher_errors import TeacherErrors

SMALL = replace(
    second_generation(),
    num_steps=9,
    examples_per_step=8,
    examples_per_shard=24,
    num_workers=1,
    vocab_size=1024,
    hidden_size=32,
    intermediate_size=64,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
)


def drawn(num: int, *, mode: Mode = Mode.PAIRWISE, **shares: float) -> list[CheckedExample]:
    rng = Random(3)
    return [drawn_example(rng, mode=mode, shares=replace(CheckedShares(), **shares)) for _ in range(num)]


@pytest.fixture(scope="module")
def vocabulary() -> TrainedVocabulary:
    texts = [example.prompt for example in drawn(300)]
    tokenizer = train_copying_tokenizer(texts, vocab_size=SMALL.vocab_size, whole=frozen_texts())
    return TrainedVocabulary(tokenizer_json=tokenizer.to_str(), num_ids=SMALL.vocab_size)


@pytest.mark.slow
def test_a_text_that_is_always_the_same_is_one_token_and_encoding_is_lossless(vocabulary) -> None:
    for text in frozen_texts():
        assert len(vocabulary.encode(text)) == 1, text
    for example in drawn(60):
        for segment in judgment(example, whole=True):
            ids = vocabulary.encode(segment.text)
            assert vocabulary.tokenizer.decode(ids, skip_special_tokens=False) == segment.text


def test_a_judge_knows_the_checks_whose_functions_are_its_tokens() -> None:
    assert known_checks(frozen_texts()) == NAMES
    without = [text for text in frozen_texts() if text not in ("        italics(r", " for x in line_words(r)),\n")]
    assert set(NAMES) - set(known_checks(without)) == {"italics", "line_words"}


def test_a_word_is_divided_in_the_same_way_with_and_without_a_blank(vocabulary) -> None:
    words = {word for example in drawn(100) for word in re.findall(r"[A-Za-z]{4,}", example.prompt)}
    assert len(words) > 300
    for word in words:
        quoted = vocabulary.tokenizer.encode(f'"{word}', add_special_tokens=False).tokens
        after_blank = vocabulary.tokenizer.encode(f"to {word}", add_special_tokens=False).tokens
        pieces = quoted[1:]
        assert after_blank[-len(pieces) :] in (pieces, [BLANK + pieces[0], *pieces[1:]]), word


@pytest.mark.parametrize(
    "text", ["a  b\n\n    c", " lead", "tail ", "Größe 漢字 🙂\t\r\n", ",\n),\n) == 5", " 12 345,67"]
)
def test_any_text_is_encoded_without_loss(vocabulary, text: str) -> None:
    assert vocabulary.tokenizer.decode(vocabulary.tokenizer.encode(text).ids) == text


@pytest.mark.parametrize(
    ("responses", "nearness"),
    [
        (("a b c", "a b"), (0.79, 0.59)),
        (("a b c", "a b c d"), (0.79, 0)),
        (("b", "a b"), (0.2, 0.59)),
        (("a",), (0.39,)),
    ],
)
def test_the_drawn_output_is_what_the_program_prints(responses: tuple[str, ...], nearness: tuple[float, ...]) -> None:
    checks = ("words(r) == 4", 'has(r, "a")')
    mode = Mode.POINTWISE if len(responses) == 1 else Mode.PAIRWISE
    example = CheckedExample(
        mode=mode,
        prompt="?",
        checks=checks,
        tools=True,
        num_responses=len(responses),
        outcomes=tuple((len(one.split()) == 4, "a" in one) for one in responses),
        nearness=nearness,
        label="B",
    )
    bound = {"prompt": "?", "response": responses[0], "responses": dict(zip("AB", responses, strict=False))}
    printed = run_trusted(program(checks, mode=mode), bindings=bound)
    assert judgment(example, whole=True)[1].text == f"\n{printed.rstrip()}\n```\n"


@pytest.mark.parametrize(
    ("check", "nearer", "farther"),
    [
        ("words(r) == 5", "a b c d", "a b c"),
        ("words(r) < 3", "a b c", "a b c d"),
        ("words(r) >= 5", "a b", "a"),
        ("2 <= words(r) <= 3", "a b c d", "a b c d e"),
        ('count(r, ",") == 0', "a, b", "a, b, c"),
        ("bullets(r) == 3", "* a\n" * 16, ""),
    ],
)
def test_a_response_that_fails_by_less_is_the_nearest(check, nearer, farther) -> None:
    def printed(a: str, b: str) -> list[str]:
        bound = {"prompt": "?", "responses": {"A": a, "B": b}}
        return run_trusted(program([check], mode=Mode.PAIRWISE), bindings=bound).splitlines()[2:]

    assert printed(nearer, farther) == ["nearest: A", 'CHECK {"A": 0, "B": 0}']
    assert printed(farther, nearer) == ["nearest: B", 'CHECK {"A": 0, "B": 0}']
    assert printed(nearer, nearer) == ['CHECK {"A": 0, "B": 0}']


def test_only_responses_that_pass_the_most_checks_can_be_the_nearest() -> None:
    responses = {"A": "x b c d e f", "B": "x", "C": "x b", "D": "y b c"}
    printed = run_trusted(
        program(["words(r) == 4", 'has(r, "x")'], mode=Mode.LISTWISE), bindings={"prompt": "?", "responses": responses}
    )
    assert printed.splitlines()[4:] == ["nearest: A", 'CHECK {"A": 1, "B": 1, "C": 1, "D": 0}']


def test_the_nearest_does_not_depend_on_how_a_limit_is_written() -> None:
    bound = {"prompt": "?", "responses": {"A": "a b c d", "B": "tea b c"}}
    for checks in (["words(r) > 4", 'count(r, "tea") > 1'], ["words(r) >= 5", 'count(r, "tea") >= 2']):
        printed = run_trusted(program(checks, mode=Mode.PAIRWISE), bindings=bound)
        assert printed.splitlines()[2] == "nearest: B"


@pytest.mark.parametrize(
    "check",
    ["words(r) in {1, 3}", "len({words(r)}) == 1", "words(r) >= 0.5", "words(r) != None", f"words(r) < {10**320}"],
)
def test_a_count_is_a_number_like_any_other(check: str) -> None:
    printed = run_trusted(program([check], mode=Mode.PAIRWISE), bindings={"prompt": "?", "responses": {"A": "a"}})
    assert printed.splitlines()[-1] == 'CHECK {"A": 1}'


def test_a_check_without_a_count_and_one_of_each_part_are_passed_or_failed() -> None:
    checks = ['has(r, "x", "y")', "all(x <= 1 for x in sentence_words(r))", "upper(r)"]
    printed = run_trusted(
        program(checks, mode=Mode.PAIRWISE), bindings={"prompt": "?", "responses": {"A": "x y", "B": "A B"}}
    )
    assert printed.splitlines()[-1] == 'CHECK {"A": 1, "B": 1}'


def test_programs_of_drawn_prompts_run_on_any_response() -> None:
    for example in filter(lambda one: one.checks, drawn(150, lookups=0.0, code=0.0, problems=0.0)):
        for response in ("", "One line.", '* a\n* b\n\n{"k": [1]}'):
            printed = run_trusted(
                program(example.checks, mode=Mode.POINTWISE), bindings={"prompt": example.prompt, "response": response}
            )
            assert printed.splitlines()[-1].startswith("CHECK "), example


def test_labels_follow_from_the_checks_and_are_even_without_them() -> None:
    for example in drawn(400, noise=0.0, failing=0.0):
        passed = [sum(each) for each in example.outcomes]
        assert not example.checks or passed["AB".index(example.label)] == max(passed)
    even: list[dict[str, float]] = [{"nothing": 1.0, "problems": 0.0}, {"toolless": 1.0}, {"tie": 1.0, "nearest": 0.0}]
    for shares in [*even, {"noise": 1.0, "nothing": 0.0}]:
        labels = Counter(example.label for example in drawn(400, mode=Mode.PAIRWISE, **shares))
        assert 150 < labels["A"] < 250, shares


def test_of_responses_that_pass_equally_many_checks_the_nearest_is_mostly_best() -> None:
    examples = drawn(1500, tie=1.0, noise=0.0, failing=0.0)
    apart = [each for each in examples if each.checks and each.nearness[0] != each.nearness[1]]
    nearest = ["AB"[max((0, 1), key=each.nearness.__getitem__)] == each.label for each in apart]
    assert len(apart) > 150
    assert 0.65 < sum(nearest) / len(nearest) < 0.85
    assert all(sum(each.outcomes[0]) == sum(each.outcomes[1]) < len(each.checks) for each in apart)


def test_the_prompt_alone_decides_whether_there_is_a_program() -> None:
    for example in drawn(200):
        text = judgment(example, whole=True)[0].text
        assert ("```python" in text) == bool(example.checks)


def test_only_contests_with_samples_have_a_check_and_no_problem_has_an_open_slot(monkeypatch) -> None:
    monkeypatch.setattr("tirjudge_training.bundled.problems.draw_passage", lambda rng: "A passage.")
    kinds = Counter[str]()
    for example in drawn(400, nothing=1.0, problems=1.0, toolless=0.0):
        assert example.checks in ((), (EXAMPLES,))
        assert not re.search(r"\{(n|big|x|poly|matrix|frac|set|name|thing|place|say)\}", example.prompt), example.prompt
        assert bool(example.checks) == ("Sample Input" in example.prompt or "Input: nums" in example.prompt)
        kinds["sample"] += "Sample Input" in example.prompt
        kinds["option"] += bool(re.search(r"^\(?B[).:]", example.prompt, flags=re.MULTILINE))
    assert kinds["sample"] > 20
    assert kinds["option"] > 50


def test_a_weak_teacher_guesses_or_checks_another_prompt() -> None:
    rng, right = Random(2), drawn(300, nothing=0.0, noise=0.0)
    for erring, is_guess in ((TeacherErrors(guesses=1.0), True), (TeacherErrors(wrong_plans=1.0), False)):
        for example in right:
            wrong = with_errors(example, erring=erring, shares=CheckedShares(noise=0.0), rng=rng)
            assert (wrong.prompt, wrong.mode) == (example.prompt, example.mode)
            if example.checks:
                assert (not wrong.checks) == is_guess
    assert [with_errors(one, erring=TeacherErrors(), shares=CheckedShares(), rng=rng) for one in right] == right


@pytest.mark.slow
def test_a_training_continues_in_the_shape_and_generation_of_its_parent(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tirjudge_training.bundled.build.PROMPTS_OF_TOKENIZER", 300)
    for recipe, shares in ((SMALL, CheckedShares()), (replace(SMALL, checked=None), None)):
        parent = tmp_path / str(shares is None)
        train_bundled(replace(recipe, num_steps=1), out=parent, on_step=lambda _: None)
        later = continuing(BundledRecipe(num_steps=1, examples_per_shard=24, num_workers=1), parent)
        assert later.checked == shares
        train_bundled(later, out=tmp_path / f"later-{shares is None}", on_step=lambda _: None)


@pytest.mark.slow
def test_the_mode_stays_a_small_part_of_what_a_later_stage_reads(tmp_path: Path, monkeypatch) -> None:
    """So the checks seldom depend on it. The embeddings of the tokens that say it are near each other, and not trained."""
    monkeypatch.setattr("tirjudge_training.bundled.build.PROMPTS_OF_TOKENIZER", 300)
    parent, later = tmp_path / "parent", tmp_path / "later"
    train_bundled(replace(SMALL, num_steps=1), out=parent, on_step=lambda _: None)
    weights = load_file(parent / "model.safetensors")
    far = weights | {EMBEDDING: 100 * weights[EMBEDDING]}
    save_file(far, parent / "model.safetensors")
    train_bundled(replace(SMALL, num_steps=2, parent=str(parent)), out=later, on_step=lambda _: None)
    modes = mode_tokens(Tokenizer.from_file(str(later / "tokenizer.json")), second_profile())
    assert len(modes) == 4
    start = weights_of_parent(parent, modes=modes, seed=SMALL.seed)[EMBEDDING].to(torch.bfloat16).float()
    table, before = load_file(later / "model.safetensors")[EMBEDDING].float(), far[EMBEDDING].float()
    for one, two in modes:
        assert (before[one] - before[two]).norm() > 2 * MODE_DISTANCE
        assert (table[one] - table[two]).norm() == pytest.approx(MODE_DISTANCE, rel=0.05)
        middle = (before[one] + before[two]) / 2
        assert torch.allclose((table[one] + table[two]) / 2, middle, atol=0.02 * float(middle.norm()))
    of_modes = sorted({token_id for pair in modes for token_id in pair})
    others = sorted(set(range(SMALL.vocab_size)) - set(of_modes))
    assert torch.equal(table[of_modes], start[of_modes])
    assert not torch.equal(table[others], start[others])


def test_rows_have_loss_on_the_text_of_the_model_alone(vocabulary) -> None:
    decode = vocabulary.tokenizer.decode
    for row in make_shard(replace(SMALL, whole=1.0), second_profile(), vocabulary, 0):
        texts = [decode(row.ids[a:b], skip_special_tokens=False) for a, b in row.loss_from]
        assert texts[-1].startswith(("<preference>", "<score>", "Nothing"))
        assert len(texts) == 1 or texts[0].startswith("```python\nimport json")
        assert "CHECK {" not in "".join(texts)


def test_tokens_that_differ_in_case_or_blank_start_alike(vocabulary) -> None:
    table = similar_embeddings(vocabulary.tokenizer, num_rows=SMALL.vocab_size, size=64, seed=1)
    ids = [vocabulary.tokenizer.token_to_id(token) for token in ("a", "\u0120a", "A", "b")]
    assert None not in ids
    unit = table[ids] / table[ids].norm(dim=1, keepdim=True)
    alike, other = (unit[0] @ unit[i] for i in (1, 3))
    assert alike > other + 0.2


@pytest.mark.slow
def test_an_interrupted_training_goes_on_and_refuses_other_settings(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tirjudge_training.bundled.build.PROMPTS_OF_TOKENIZER", 300)
    state, out, steps = tmp_path / "state", tmp_path / "out", list[int]()

    def interrupted(report: StepReport) -> None:
        steps.append(report.step)
        if report.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_bundled(SMALL, out=out, state=state, on_step=interrupted)
    with pytest.raises(CheckpointError, match="other settings"):
        train_bundled(replace(SMALL, seed=9), out=out, state=state, on_step=lambda _: None)
    trained = train_bundled(SMALL, out=out, state=state, on_step=lambda report: steps.append(report.step))
    assert steps[:6] == list(range(6))
    assert 0 < steps[6] <= 6  # from the last saved shard
    assert steps[-1] == SMALL.num_steps - 1
    assert len(trained.losses) == SMALL.num_steps
    assert json.loads((out / "judge.json").read_text())["format"] == "tirjudge/2"
    (stage,) = json.loads((out / "training.json").read_text())["stages"]
    assert stage["recipe"]["checked"]["nothing"] == CheckedShares().nothing


def test_every_mode_is_drawn() -> None:
    for mode in MODEL_MODES:
        sizes = {example.num_responses for example in drawn(100, mode=mode)}
        assert min(sizes) >= (1 if mode is Mode.POINTWISE else 2)
        assert (len(sizes) > 1) == (mode is Mode.LISTWISE)


def test_each_stage_starts_with_the_one_before_it_and_has_new_data(tmp_path: Path) -> None:
    for recipe, num_stages, last_steps in ((SMALL, CONSTANT_STAGES + 1, 6), (replace(SMALL, checked=None), 2, 1)):
        stages = stages_of(recipe, folder=tmp_path)
        assert [stage.parent for stage in stages] == [
            None,
            *(str(stage_folder(tmp_path, number) / "checkpoint") for number in range(1, num_stages)),
        ]
        assert len({stage.seed for stage in stages}) == num_stages
        assert stages[-1].num_steps == last_steps
        assert stages[-1] == last_stage(recipe, parent=Path(stages[-1].parent or ""))


def test_the_prompt_shows_nothing_of_the_responses() -> None:
    engine_prompts = {
        FORMAT.render_prompt(
            Mode.PAIRWISE,
            prompt="Say hello.",
            responses=responses,
            reference=reference,
            tools=True,
            max_tool_calls=3,
            prompt_chars=100,
            response_chars=0,
        )
        for responses, reference in ((["", "Hi"], "Hello"), (["</response_a>", "x" * 900], "Good day"))
    }
    assert len(engine_prompts) == 1
    assert engine_prompts.pop().count("[not shown]") == 3


@pytest.mark.slow
def test_processes_generate_the_same_rows_in_the_same_order(vocabulary) -> None:
    profile = second_profile()
    alone, helped = (
        list(islice(batches_for_steps(SMALL, rank=0, profile=profile, vocabulary=vocabulary, num_generators=num), 7))
        for num in (0, 2)
    )
    assert [(index, [batch.ids.tolist() for batch in step]) for index, step in alone] == [
        (index, [batch.ids.tolist() for batch in step]) for index, step in helped
    ]
