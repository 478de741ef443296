"""Files, fetched files, attachments and standard input of programs."""

import os
import textwrap

import pytest

from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel, Limits

WITH_DIRECTORY = pytest.mark.parametrize(
    "level", [IsolationLevel.NAMESPACES_CGROUP, IsolationLevel.NAMESPACES], indirect=True
)


@WITH_DIRECTORY
async def test_files_exist_when_the_program_starts(pool):
    files = {"a.txt": b"first", "deep/er/b.bin": bytes(range(256)), "empty": b""}
    code = """
        import hashlib, os
        print(os.getcwd(), open("a.txt").read(), len(open("deep/er/b.bin", "rb").read()), os.path.getsize("empty"))
        open("a.txt", "a").write(" and more")
        print(open("/tmp/a.txt").read())
    """
    result = await pool.run(textwrap.dedent(code), files=files)
    assert result.stdout == "/tmp first 256 0\nfirst and more\n", result
    assert (await pool.run("import os; print(os.listdir('.'))", fetch=["a.txt"])).files == {}


@WITH_DIRECTORY
async def test_files_of_a_program_can_be_fetched(pool):
    code = """
        import os
        os.makedirs("out/deep")
        open("out/deep/result.bin", "wb").write(bytes(range(256)) * 4)
        open("empty", "w")
        open("é", "w").write("ü")
    """
    fetch = ["out/deep/result.bin", "empty", "é", "missing", "out", "empty/below"]
    result = await pool.run(textwrap.dedent(code), fetch=fetch)
    assert result.files == {"out/deep/result.bin": bytes(range(256)) * 4, "empty": b"", "é": "ü".encode()}


@pytest.mark.slow
@WITH_DIRECTORY
async def test_files_of_a_killed_program_can_be_fetched(pool):
    result = await pool.run("open('so_far', 'w').write('half')\nwhile True: pass", fetch=["so_far"])
    assert (result.outcome, result.files) == (Outcome.TIMEOUT, {"so_far": b"half"})


@WITH_DIRECTORY
async def test_only_regular_files_are_fetched(pool, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the key is 1234")
    secret.chmod(0o644)
    code = """
        import os
        os.symlink(target, "link")
        os.symlink(os.path.dirname(target), "directory")
        os.symlink("/dev/zero", "zero")
        os.symlink("/", "root")
        os.symlink(os.__file__, "library")
        open("plain", "w").write("x")
        os.symlink("plain", "link_inside")
        try:
            os.mkfifo("fifo")
        except OSError:
            pass
        os.chmod("plain", 0)
    """
    fetch = ["link", f"directory/{secret.name}", "zero", "root/etc/passwd", "library", "link_inside", "fifo"]
    result = await pool.run(textwrap.dedent(code), bindings={"target": str(secret)}, fetch=fetch)
    assert (result.outcome, result.files) == (Outcome.OK, {})


@WITH_DIRECTORY
async def test_the_total_size_of_fetched_files_is_limited(pool):
    code = "for number in range(8):\n    with open(f'sparse{number}', 'wb') as file: file.truncate(4 << 20)"
    result = await pool.run(code, fetch=[f"sparse{number}" for number in range(8)], limits=Limits(scratch_mb=10))
    assert result.outcome is Outcome.OK
    assert sum(map(len, result.files.values())) == 8 << 20


@WITH_DIRECTORY
async def test_deep_and_renamed_directories_are_not_fetched(pool):
    code = """
        import os
        for _ in range(200):
            os.mkdir("d")
            os.chdir("d")
        os.chdir("/tmp")
        os.rename("d", "e")
        os.symlink("e", "d")
    """
    assert (await pool.run(textwrap.dedent(code), fetch=["d/d", "/".join("e" * 200)])).files == {}


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "a/../../b", "a//b", "", ".", "a/", "x" * 300, "a\0b", "a\nb", "\ud83d", "./a"]
)
@WITH_DIRECTORY
async def test_a_path_that_is_not_relative_and_plain_is_refused(pool, path):
    with pytest.raises(ValueError, match="files"):
        await pool.run("print(1)", files={path: b""})
    with pytest.raises(ValueError, match="fetch"):
        await pool.run("print(1)", fetch=[path])


@WITH_DIRECTORY
async def test_files_that_exceed_the_limits_are_refused(pool):
    for files in (
        {"large": bytes(5 << 20)},
        {f"{number}": bytes(4 << 20) for number in range(5)},
        {f"{number}": b"" for number in range(1000)},
        {"a": b"", "a/b": b""},
    ):
        with pytest.raises(ValueError, match="files"):
            await pool.run("print(1)", files=files)


@pytest.mark.parametrize("level", [IsolationLevel.LANDLOCK], indirect=True)
async def test_files_are_refused_at_levels_without_a_private_directory(pool):
    with pytest.raises(ValueError, match="files: programs have no private directory at the level landlock"):
        await pool.run("print(1)", files={"a": b""})
    with pytest.raises(ValueError, match="fetch: "):
        await pool.run("print(1)", fetch=["a"])


@pytest.mark.on_host
async def test_attachments_can_be_read_at_their_given_paths(pool, tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "part.ttl").write_text("x")
    tmp_path.chmod(0o700)
    code = """
        print(sorted(attachments))
        print(open(attachments["table.csv"]).read(), open(attachments["g"] + "/part.ttl").read())
    """
    attachments = {"table.csv": tmp_path / "table.csv", "g": str(tmp_path / "graph")}
    for _ in range(2):
        result = await pool.run(textwrap.dedent(code), attachments=attachments)
        assert result.stdout == "['g', 'table.csv']\na,b\n1,2\n x\n", result
    assert (await pool.run("print(attachments)")).stdout == "{}\n"


@WITH_DIRECTORY
@pytest.mark.on_host
async def test_attachments_are_not_visible_to_the_next_program(pool, tmp_path):
    (tmp_path / "a.txt").write_text("1")
    look = "import os; print(os.listdir('/attachments'))"
    for _ in range(2):
        assert (await pool.run(look, attachments={"a": tmp_path / "a.txt"})).stdout == "['a']\n"
        assert (await pool.run(look)).stdout == "[]\n"


@pytest.mark.on_host
async def test_attachments_cannot_be_changed_or_used_to_reach_other_files(pool, tmp_path):
    (tmp_path / "outside.txt").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir(mode=0o777)
    inside.chmod(0o777)
    (inside / "a.txt").write_text("as it was")
    (inside / "a.txt").chmod(0o666)
    (inside / "way_out").symlink_to(tmp_path / "outside.txt")
    code = """
        import os
        place = attachments["dir"]
        attempts = {
            "write": lambda: open(place + "/a.txt", "w"),
            "append": lambda: open(place + "/a.txt", "a"),
            "create": lambda: open(place + "/new", "w"),
            "unlink": lambda: os.unlink(place + "/a.txt"),
            "chmod": lambda: os.chmod(place + "/a.txt", 0),
            "rename": lambda: os.rename(place, place + "x"),
            "truncate": lambda: os.truncate(place + "/a.txt", 0),
            "link": lambda: os.link(place + "/a.txt", "/tmp/a.txt"),
            "follow": lambda: open(place + "/way_out").read(),
            "upwards": lambda: open(place + "/../outside.txt").read(),
            "beside": lambda: open(os.path.dirname(place) + "/new", "w"),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
                print("DID", name)
            except OSError:
                pass
        print(open(place + "/a.txt").read())
    """
    result = await pool.run(textwrap.dedent(code), attachments={"dir": inside})
    assert result.stdout == "as it was\n", result
    assert sorted(os.listdir(inside)) == ["a.txt", "way_out"]


@pytest.mark.on_host
async def test_invalid_attachments_are_refused_with_a_reason(pool, tmp_path):
    (tmp_path / "a").write_text("1")
    os.mkfifo(tmp_path / "fifo")
    for attachments, reason in (
        ({"a": "relative"}, "expected an absolute path"),
        ({"../a": tmp_path / "a"}, "letters, digits"),
        ({"a": tmp_path / "missing"}, "No such file"),
        ({"a": tmp_path / "fifo"}, "neither a file nor a directory"),
    ):
        with pytest.raises(ValueError, match=reason):
            await pool.run("print(1)", attachments=attachments)
    with pytest.raises(ValueError, match="bindings: 'attachments'"):
        await pool.run("print(1)", bindings={"attachments": "x"}, attachments={"a": tmp_path / "a"})


async def test_stdin_is_read_like_a_file(pool):
    code = "import sys; print(input(), '|', sys.stdin.readline(), '|', sys.stdin.read(), '|', sys.stdin.read())"
    result = await pool.run(code, stdin="one\ntwo\nthrée\nfour")
    assert result.stdout == "one | two\n | thrée\nfour | \n"
    assert (await pool.run("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"
    assert (await pool.run("import sys; print(sum(map(int, sys.stdin)))", stdin="1\n" * 100_000)).stdout == "100000\n"


async def test_a_traceback_shows_only_the_program(pool):
    failing = await pool.run("def f():\n    return 1 / 0\nf()")
    assert failing.stderr.splitlines() == [
        "Traceback (most recent call last):",
        '  File "program.py", line 3, in <module>',
        '  File "program.py", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert (await pool.run("def f(:")).stderr.startswith('  File "program.py", line 1\n')


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "exit_code"),
    [
        ("sys.stdout.write('out'); sys.stderr.write('words')", "out", "words", 0),
        ("sys.stderr.write('words'); sys.exit(3)", "", "words", 3),
        ("sys.stdout = None; sys.stderr.write('words')", "", "words", 0),
        ("print('out'); sys.stdout.close(); sys.stderr.write('words')", "out\n", "words", 0),
        ("sys.stdout = 'no stream'; sys.stderr.write('words')", "", "words", 120),
    ],
)
async def test_an_unterminated_last_line_is_returned(pool, code, stdout, stderr, exit_code):
    result = await pool.run(f"import sys; {code}")
    assert (result.stdout, result.stderr, result.exit_code) == (stdout, stderr, exit_code)


async def test_the_end_of_stderr_is_returned(pool):
    result = await pool.run("import sys; sys.stderr.write('x' * 50_000 + 'end')")
    assert (len(result.stderr), result.stderr[-4:]) == (16_384, "xend")
    assert "ZeroDivisionError" in (await pool.run("1 / 0")).stderr
