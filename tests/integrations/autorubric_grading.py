"""Grade an answer by a rubric of two criteria, and print the outcome as JSON.

`test_autorubric.py` runs this script in an environment with autorubric.
"""

from __future__ import annotations

import asyncio
import json
import sys

from autorubric import Criterion, Rubric
from autorubric.decision import DecisionModelConfig
from autorubric.graders import CriterionGrader


async def main() -> None:
    rubric = Rubric(
        [
            Criterion(name="four", requirement="The answer says that it is four.", weight=10.0),
            Criterion(name="rude", requirement="The answer is rude.", weight=-5.0),
        ]
    )
    judge = DecisionModelConfig(model="judge", api_base=sys.argv[1], api_key="tj-secret", max_retries=1)
    grader = CriterionGrader(judge_model_config=judge)
    report = await rubric.grade(to_grade="It is 4.", grader=grader, query="What is 2 + 2?")
    outcome = {
        "score": report.score,
        "error": report.error,
        "verdicts": [criterion.final_verdict.name for criterion in report.report],
        "probabilities": [criterion.votes[0].probabilities for criterion in report.report],
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(main())
