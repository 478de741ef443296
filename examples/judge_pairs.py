"""Judge two answers with a server, and read the programs behind the verdict."""

from running_server import server_url

from tirjudge import Client, JudgeRequest, Mode

PROMPT = "Describe the sea in at least 3 sentences. Do not use any commas."
ANSWERS = ["The sea is wide. It is blue. It moves.", "The sea is wide, blue and deep. It moves."]

with server_url() as url, Client(url) as client:
    request = JudgeRequest(mode=Mode.PAIRWISE, prompt=PROMPT, responses=ANSWERS, orders="both")
    judgment = client.judge(request, deadline_s=60)
    verdict = judgment.verdict
    print(
        f"verdict: {verdict.status}, best {verdict.best}, probabilities {verdict.probabilities}, basis {verdict.basis}"
    )
    for rollout in judgment.rollouts:
        print(f"shown in the order {rollout.order}:")
        for turn in rollout.turns:
            if turn.code is not None:
                print(f"  a program ended with {turn.outcome} and printed {turn.output!r}")
