"""A reward function with the interface of TRL: prompts and completions in, one reward per completion out.

A missing verdict is `None`, not a low reward, so that the trainer leaves the completion out.
"""

import asyncio

from running_server import server_url

from tirjudge.integrations.trl import TRLJudgeReward

PROMPTS = ["Write exactly two words."] * 3
COMPLETIONS = ["red fox", "the red fox", "fox"]

with server_url() as url:
    reward_function = TRLJudgeReward(url)
    rewards = asyncio.run(reward_function(prompts=PROMPTS, completions=COMPLETIONS))
    for completion, reward in zip(COMPLETIONS, rewards, strict=True):
        print(f"{completion!r}: {reward}")
