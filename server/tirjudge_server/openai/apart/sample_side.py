"""Run the code of a sample: the earlier steps, then the last one, whose result is sent to the server.

In the program, this text follows `literals.py`. The sample's code can forge its own result, but no other results.
"""

# The text of `literals.py` comes first in the program, so names of that file are defined.

import contextlib
import io
import sys

given = json.loads(globals()["_given"])
send_result = tell


def literals_of(values):
    """Split variables into encoded values, names of functions, and names of other values that cannot be encoded."""
    plain, functions, others = {}, [], []
    for name, value in values.items():
        if name.startswith("__"):
            continue
        try:
            plain[name] = encoded(value)
        except (NoLiteral, RecursionError):
            (functions if callable(value) else others).append(name)
    return plain, functions, others


def do(step, values):
    """Run one step in the given namespace."""
    values.update({name: decoded(value) for name, value in step["variables"].items()})
    if step["kind"] == "exec":
        exec(compile(step["text"], "<string>", "exec"), values)
        return None
    if step["kind"] == "eval":
        return eval(compile(step["text"], "<string>", "eval"), values)
    arguments, named = decoded(step["arguments"])
    result = values[step["text"]](*arguments, **named)
    step["arguments"] = encoded([arguments, named])
    return result


def main():
    values, printed, message = {"__name__": given["name"]}, io.StringIO(), {"error": None}
    for step in given["steps"][:-1]:
        with contextlib.redirect_stdout(io.StringIO()):
            do(step, values)
    last = given["steps"][-1]
    try:
        with contextlib.redirect_stdout(printed):
            result = do(last, values)
        message["value"] = encoded(result)
    except (NoLiteral, RecursionError) as error:
        message["error"] = ["NoLiteral", str(error)]
    except BaseException as error:
        message["error"] = [type(error).__name__, str(error)]
    message["variables"], message["functions"], message["others"] = literals_of(values)
    message["arguments"] = last.get("arguments")
    message["stdout"] = printed.getvalue()
    sys.stdout.flush()
    send_result(1, given["marker"], message)


main()
