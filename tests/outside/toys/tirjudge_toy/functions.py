"""A toy tool for programs: counts the letters of a text."""

from tirjudge.tools.functions import FunctionKind, fixed, function


@function(version="2", is_deterministic=True)
async def letters(text: str) -> int:
    """Return the number of letters in a text."""
    return sum(map(str.isalpha, text))


KIND = FunctionKind(name="letters", open=fixed(letters))
