"""Judge many requests concurrently. Abstentions and errors are counted separately from verdicts."""

import asyncio
from collections import Counter

from running_server import server_url

from tirjudge import AsyncClient, JudgeRequest, Mode, RequestRefused, ServerUnavailable

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}


def fox(num_words: int) -> str:
    """A text of a number of words."""
    return " ".join(["fox"] * num_words)


def requests() -> list[JudgeRequest]:
    """One request per number of words."""
    return [
        JudgeRequest(mode=Mode.PAIRWISE, prompt=f"Write exactly {name} words.", responses=[fox(num), fox(num + 1)])
        for num, name in NUMBERS.items()
    ]


async def judge_one(client: AsyncClient, request: JudgeRequest) -> str:
    """Return the index of the best response, or why there is none."""
    try:
        judgment = await client.judge(request, deadline_s=60)
    except (RequestRefused, ServerUnavailable) as error:
        return f"failed: {error}"
    return judgment.verdict.status if judgment.verdict.best is None else f"response {judgment.verdict.best}"


async def main() -> None:
    """Judge all requests."""
    with server_url() as url:
        async with AsyncClient(url) as client:
            results = await asyncio.gather(*(judge_one(client, request) for request in requests()))
    for result, count in Counter(results).most_common():
        print(f"{result}: {count}")


asyncio.run(main())
