"""Give the programs of a judge a function of yours. The host runs it, and records its calls."""

import asyncio

from tirjudge.tools.functions import Offer, function
from tirjudge_sandbox import SandboxPool

PRICES = {"apple": 0.4, "pear": 0.6}

PROGRAM = """
print(price("apple"))
print(response_a, "is right:", price("pear") == 0.6)
"""


@function(version="1", is_deterministic=True)
async def price(fruit: str) -> float:
    """Return the price of a fruit in euros."""
    return PRICES[fruit]


async def main() -> None:
    """Run a program as the judge's sandbox runs it. A server offers the function with `--tool` (docs/tools.md)."""
    async with SandboxPool(slots=1) as pool:
        result = await pool.run(PROGRAM, bindings={"response_a": "0.60 EUR"}, offer=Offer(functions=[price]))
    print(result.stdout, end="")
    for call in result.calls:
        print(f"called {call.function} with {call.arguments}: {call.result}")


asyncio.run(main())
