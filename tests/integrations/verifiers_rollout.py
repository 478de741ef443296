"""Score a task in the same way as verifiers, and print the outcome as JSON.

`test_verifiers.py` runs this script in an environment with verifiers. The module is also the plugin: it exports the
judge.
"""

from __future__ import annotations

import asyncio
import json
import sys

import verifiers.v1 as vf

from tirjudge.integrations.verifiers import TirJudge

__all__ = ["TirJudge"]


class Data(vf.TaskData):
    answer: str


class Question(vf.Task[Data, vf.State, vf.TaskConfig]):
    pass


async def main() -> None:
    judge = {"id": "verifiers_rollout", "answer_field": "answer", **json.loads(sys.argv[1])}
    task = Question(Data(prompt="What is 2 + 2?", answer="four"), vf.TaskConfig.model_validate({"judges": [judge]}))
    trace = vf.Trace.model_construct(root_reply="It is 4.", rewards={}, metrics={}, info={}, extra_usage=[])
    outcome = {}
    try:
        await task.score(trace)
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    outcome["rewards"] = {name: reward and reward.model_dump() for name, reward in trace.rewards.items()}
    outcome["calls"] = trace.info.get("judge_calls", [])
    outcome["usage"] = [usage.model_dump() for usage in trace.extra_usage]
    print(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(main())
