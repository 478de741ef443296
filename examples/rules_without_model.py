"""Let rules on a table decide, without a model: `mode: "rules"` scores responses by checks alone."""

import asyncio
import json
import tempfile
from pathlib import Path

from tirjudge.opening import open_judge
from tirjudge.types import JudgeRequest, Judgment, Mode

CHECKS = """
[[check]]
name = "json"
kind = "json_schema"
message = "the answer is JSON with a decision"
schema = { type = "object", required = ["decision"], properties = { decision = { enum = ["approve", "reject"] } } }

[[check]]
name = "no-promises"
kind = "pattern"
pattern = "(?i)guarantee"
expect = "no_match"
message = "the answer promises nothing"
"""

ANSWERS = [
    json.dumps({"decision": "approve", "reason": "We guarantee success."}),
    json.dumps({"decision": "reject", "reason": "The debt is too high."}),
]


async def judged(checks: Path) -> Judgment:
    """Judge the answers by the checks of a file."""
    async with open_judge(f"rules:{checks}", tools=[]) as judge:
        return await judge.judge(
            JudgeRequest(mode=Mode.RULES, prompt="May the applicant get the loan?", responses=ANSWERS)
        )


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder, "checks.toml")
    file.write_text(CHECKS)
    judgment = asyncio.run(judged(file))
for answer, results, score in zip(ANSWERS, judgment.checks, judgment.verdict.scores or [], strict=True):
    print(f"{answer}: score {score}")
    for result in results:
        print(f"  {result.check}: {'passed' if result.passed else result.reasons[0].message}")
