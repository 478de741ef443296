from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge.durable import StorageError
from tirjudge.errors import EngineUnavailable
from tirjudge_harness.items import InputError, JudgeSettings, read_tasks
from tirjudge_harness.output import Output
from tirjudge_harness.pacing import Pace
from tirjudge_harness.runner import Runner, key_of, run_all

IDENTITY = {"model": "judge"}
CONFIGURATION = {"mode": None, "tools": "auto", "model": "judge"}


async def run(path: Path, *, out: Path, judge, configuration=CONFIGURATION, num: int | None = None) -> Output:
    """Judge the first `num` items of a file, one at a time. None: all items."""
    tasks, _ = read_tasks(path, settings=JudgeSettings())

    def key(task):
        return key_of(task.request, identity=IDENTITY)

    async with Output(out, configuration=configuration, tasks=tasks, key=key) as output:
        runner = Runner(judge, identity=IDENTITY, store=output, pace=Pace(most=1))
        questions = [(task.item.id, task.request) for task in tasks[:num]]
        await run_all(questions, runner=runner, on_done=lambda *_: None)
    return output


async def test_each_line_has_id_and_judgment(write_lines, pairs, first_is_best, tmp_path) -> None:
    out = tmp_path / "new" / "out.jsonl"
    await run(write_lines([*pairs, {"id": 5, "prompt": "p", "responses": ["a", "b"]}]), out=out, judge=first_is_best)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [*(f"i{n}" for n in range(10)), 5]
    assert (lines[0]["label"], lines[0]["correct"]) == (0, 1.0)
    assert lines[0]["judgment"]["object"] == "judgment"
    assert "label" not in lines[-1]
    assert "correct" not in lines[-1]


async def test_a_second_run_judges_only_missing_items(write_lines, pairs, first_is_best, tmp_path) -> None:
    path, out = write_lines(pairs), tmp_path / "out.jsonl"
    await run(path, out=out, judge=first_is_best, num=4)
    await run(path, out=out, judge=first_is_best)
    assert first_is_best.prompts == [f"p{n}" for n in range(10)]
    before = out.read_bytes()
    await run(path, out=out, judge=first_is_best, num=2)
    assert out.read_bytes() == before


async def test_a_corrected_label_is_scored_again(write_lines, pairs, first_is_best, tmp_path) -> None:
    out = tmp_path / "out.jsonl"
    await run(write_lines(pairs[:4]), out=out, judge=first_is_best)
    unlabelled = {key: value for key, value in pairs[2].items() if key != "label"}
    mended = write_lines([pairs[0], pairs[1] | {"label": 1}, unlabelled, pairs[3]])
    output = await run(mended, out=out, judge=first_is_best)
    assert first_is_best.prompts == ["p0", "p1", "p2", "p3"]
    expected = [(0, 1.0), (1, 0.0), (None, None), (0, 1.0)]
    assert [(record.label, record.correct) for record in output.lines.values()] == expected
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line.get("label"), line.get("correct")) for line in lines] == expected


async def test_an_unwritable_output_is_reported_by_name(write_lines, pairs, first_is_best, tmp_path) -> None:
    for out in (tmp_path, write_lines(pairs) / "out.jsonl"):
        with pytest.raises(StorageError, match="a writable file is needed") as refused:
            await run(write_lines(pairs), out=out, judge=first_is_best)
        assert str(refused.value).startswith(f"{out}: ")
    assert list(tmp_path.iterdir()) == [tmp_path / "in.jsonl"]


@pytest.mark.parametrize("num_torn", [1, 40, 200])
async def test_an_incomplete_last_line_is_judged_again(
    write_lines, pairs, first_is_best, tmp_path, num_torn: int
) -> None:
    path, out = write_lines(pairs), tmp_path / "out.jsonl"
    await run(path, out=out, judge=first_is_best)
    whole = out.read_bytes()
    out.write_bytes(whole[:-num_torn])
    await run(path, out=out, judge=first_is_best)
    assert first_is_best.prompts == [*(f"p{n}" for n in range(10)), "p9"]
    assert out.read_bytes() == whole


async def test_failures_are_recorded_and_retried(write_lines, pairs, first_is_best, tmp_path) -> None:
    path, out = write_lines(pairs[:3]), tmp_path / "out.jsonl"

    async def fails_once(request):
        if request.prompt == "p1":
            raise EngineUnavailable("no GPU")
        return await first_is_best(request)

    output = await run(path, out=out, judge=fails_once)
    assert [record.id for record in output.lines.values()] == ["i0", "i2"]
    failed = json.loads(out.read_text().splitlines()[1])
    assert (failed["id"], failed["error"]) == ("i1", "EngineUnavailable: no GPU")
    assert "judgment" not in failed
    assert "correct" not in failed
    await run(path, out=out, judge=first_is_best)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["i0", "i2", "i1"]
    assert not any("error" in line for line in lines)


async def test_a_different_configuration_is_rejected_with_the_difference(
    write_lines, pairs, first_is_best, tmp_path
) -> None:
    path, out = write_lines(pairs), tmp_path / "out.jsonl"
    await run(path, out=out, judge=first_is_best, num=1)
    with pytest.raises(StorageError, match=r'another configuration \(tools was "auto" and is now "off"\)'):
        await run(path, out=out, judge=first_is_best, configuration=CONFIGURATION | {"tools": "off"})


async def test_a_different_input_is_rejected_with_the_item(write_lines, pairs, first_is_best, tmp_path) -> None:
    out = tmp_path / "out.jsonl"
    await run(write_lines(pairs), out=out, judge=first_is_best, num=2)
    with pytest.raises(InputError, match="another input: the item with id 'i1' differs"):
        await run(write_lines([pairs[0], pairs[1] | {"prompt": "new"}]), out=out, judge=first_is_best)
    with pytest.raises(InputError, match="another input: id 'i0' is not in the input"):
        await run(write_lines(pairs[1:]), out=out, judge=first_is_best)


async def test_a_damaged_file_is_rejected_with_its_line(write_lines, pairs, first_is_best, tmp_path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("my notes\n")
    with pytest.raises(StorageError, match=r"out\.jsonl: line 1 is not a valid record"):
        await run(write_lines(pairs), out=out, judge=first_is_best)
    assert out.read_text() == "my notes\n"


async def test_identical_items_are_judged_once_and_have_one_line_each(
    write_lines, pairs, first_is_best, tmp_path
) -> None:
    twin = pairs[0] | {"id": "twin", "label": 1}
    path, out = write_lines([pairs[0], twin]), tmp_path / "out.jsonl"
    await run(path, out=out, judge=first_is_best)
    assert first_is_best.prompts == ["p0"]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["id"], line["correct"]) for line in lines] == [("i0", 1.0), ("twin", 0.0)]
    out.write_bytes(out.read_bytes().splitlines(keepends=True)[0])
    await run(path, out=out, judge=first_is_best)
    assert first_is_best.prompts == ["p0"]
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["i0", "twin"]


async def test_an_output_of_an_earlier_version_is_resumed_and_gets_outlines(
    write_lines, pairs, first_is_best, tmp_path
) -> None:
    path, out = write_lines(pairs[:2]), tmp_path / "out.jsonl"
    await run(path, out=out, judge=first_is_best)
    first, second = (json.loads(line) for line in out.read_text().splitlines())
    assert list(first) == ["id", "label", "correct", "judgment", "item_sha256", "configuration", "outline"]
    now = json.dumps(first, separators=(",", ":"), ensure_ascii=False) + "\n"
    del first["outline"]
    earlier = json.dumps(first, separators=(",", ":"), ensure_ascii=False) + "\n"
    failure = {"id": second["id"], "label": 1, "error": "EngineUnavailable: gone"}
    failure |= {name: second[name] for name in ("item_sha256", "configuration")}
    out.write_text(earlier + json.dumps(failure) + "\n" + '{"id": "i')
    await run(path, out=out, judge=first_is_best)
    assert first_is_best.prompts == ["p0", "p1", "p1"]
    lines = out.read_text().splitlines(keepends=True)
    assert lines[0] == now
    assert json.loads(lines[1])["id"] == second["id"]
