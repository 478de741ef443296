"""Eq. 2: matches manual values and TRL, and has no gradient at tokens that the policy did not sample."""

import asyncio
import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.training.tiny import FixedCollector, made_up_groups, save_tiny
from tirjudge_training.dapo import dapo_loss, group_advantages, overlong_penalty, token_weights
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers.shaping import loss_mask
from tirjudge_training.trainers.trl.rl import RLStage

G = 4


def test_advantages_match_manual_values() -> None:
    # mean 3/4; squared deviations 9/16 + 3 * 1/16 = 3/4; over G - 1 = 3: 1/4; standard deviation 1/2; -3/4 / 1/2 = -3/2
    advantages = group_advantages(torch.tensor([[0.0, 1.0, 1.0, 1.0]]), eps=0.0)
    torch.testing.assert_close(advantages, torch.tensor([[-1.5, 0.5, 0.5, 0.5]]))


def test_group_with_equal_rewards_has_no_advantage() -> None:
    assert group_advantages(torch.tensor([[0.1] * 4, [1.0] * 4])).abs().max() == 0


def test_loss_matches_manual_values() -> None:
    ratios = torch.tensor([[0.5, 1.0], [1.5, 1.0], [1.2, 7.0], [0.5, 1.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 0], [1, 0]])
    reference = torch.zeros(4, 2)
    reference[3, 0] = math.log(2)
    logprobs = torch.full((4, 2), -1.0)
    loss = dapo_loss(
        logprobs,
        old_logprobs=logprobs - ratios.log(),
        reference_logprobs=logprobs + reference,
        advantages=torch.tensor([-1.5, 0.5, 0.5, 0.5]),
        mask=mask,
        group_size=4,
    )
    # rollout 1: min(.5 * -1.5, .8 * -1.5) = -1.2, clipped   and   1 * -1.5 = -1.5
    # rollout 2: min(1.5 * .5, 1.3 * .5)   =   .65, clipped  (its second token is padding)
    # rollout 3: 1.2 * .5                  =   .6            (its second token is program output; its ratio is ignored)
    # rollout 4: min(.5 * .5, .8 * .5)     =   .25
    # -(-1.2 - 1.5 + .65 + .6 + .25) / 5 tokens = 1.2 / 5 = .24; two of five clipped
    # k3 of the one token that differs: 2 - ln 2 - 1 = .3068528; over 5 tokens .0613706
    assert loss.policy.item() == pytest.approx(0.24, abs=1e-6)
    assert loss.clip_frac.item() == pytest.approx(0.4)
    assert loss.kl.item() == pytest.approx(0.0613706, abs=1e-6)
    assert loss.total.item() == pytest.approx(0.24 + 0.01 * 0.0613706, abs=1e-6)


def test_normalizers_weight_tokens_by_batch_or_by_group() -> None:
    mask = torch.tensor([[1, 1], [1, 0], [1, 0], [0, 0]])  # groups of two: three tokens, and one
    by_batch = token_weights(mask, group_size=2, normaliser="token_mean")
    by_group = token_weights(mask, group_size=2, normaliser="group_mean")
    torch.testing.assert_close(by_batch, mask / 4)
    torch.testing.assert_close(by_group, torch.tensor([[1 / 6, 1 / 6], [1 / 6, 0], [1 / 2, 0], [0, 0]]))


def test_group_without_tokens_in_the_loss_has_no_weight() -> None:
    mask = torch.tensor([[1, 1], [1, 0], [0, 0], [0, 0]])
    weights = token_weights(mask, group_size=2, normaliser="group_mean")
    torch.testing.assert_close(weights, mask / 3)


def test_shapes_that_do_not_match_are_rejected() -> None:
    a = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"advantages \(3,\) given"):
        dapo_loss(a, old_logprobs=a, reference_logprobs=None, advantages=torch.zeros(3), mask=a, group_size=2)


def test_soft_penalty_matches_trl() -> None:
    from trl.rewards import get_soft_overlong_punishment

    theirs = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    lengths = [1, 80, 81, 90, 100, 130]
    ours = [overlong_penalty(n, max_tokens=100, buffer_tokens=20) for n in lengths]
    assert ours == pytest.approx([0.0, 0.0, -0.05, -0.5, -1.0, -1.0])
    assert ours == pytest.approx(theirs(completion_ids=[[1] * n for n in lengths]))


def settings_of(**changes) -> RLSettings:
    base = {
        "group_size": G,
        "prompts_per_step": 2,
        "per_device_batch": G,
        "device": "cpu",
        "kl": 0.2,
        "context_tokens": 99,
    }
    return RLSettings(**{**base, **changes})


def answer_logprobs(model, rows, *, length: int) -> torch.Tensor:
    """(B, length): the log-probability of each answer token, from a separate forward pass per row; 0 after the end."""
    found = []
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.ids]])
        logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        picked = logprobs.gather(1, ids[0, 1:, None])[len(row.prompt_ids) - 1 :, 0]
        found.append(torch.nn.functional.pad(picked, (0, length - len(row.ids))))
    return torch.stack(found)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("start"))


def open_trainer(start, folder, *, groups, settings):
    """TRL's trainer as a stage creates it, with the policy moved away from the reference."""

    class NoPolicy:
        version = 0

        async def load(self, weights, *, version) -> None:
            self.version = version

    runner = asyncio.Runner()
    stage = RLStage(
        start=start,
        folder=folder,
        collector=FixedCollector(groups),
        policy=NoPolicy(),
        settings=settings,
        num_steps=1,
        run=runner.run,
        on_step=lambda *_: None,
        keep=lambda step, rows: None,
        max_answer_tokens=99,
    )
    trainer = stage.make_trainer()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return trainer, runner


def trl_gradients(trainer) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one complete step, summed over its passes."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    batch = [{"prompt": ""} for _ in range(trainer.args.generation_batch_size)]
    losses = []
    for _ in range(trainer.args.gradient_accumulation_steps):
        losses.append(trainer.training_step(trainer.model, batch, None).item())
    return sum(losses), {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


@pytest.mark.parametrize("normaliser", ["token_mean", "group_mean"])
@pytest.mark.parametrize("old_policy", ["trainer", "engine"])
def test_loss_and_gradient_match_trl(start, tmp_path, normaliser, old_policy) -> None:
    settings = settings_of(normaliser=normaliser, old_policy=old_policy)
    groups = made_up_groups(num_groups=2, group_size=G)
    trainer, runner = open_trainer(start, tmp_path, groups=groups, settings=settings)
    rows = [row for group in groups for row in group.trajectories]
    if old_policy == "engine":  # probabilities close to the policy's, so that only some ratios are clipped
        groups, rows = with_engine_logprobs(trainer.model, groups)
        trainer.rollout_func.__self__.collector = FixedCollector(groups)
    with runner:
        theirs, their_gradients = trl_gradients(trainer)

    length = max(len(row.ids) for row in rows)
    mask = torch.tensor(
        [
            loss_mask(row.mask, stop_reason=row.stop_reason, settings=settings) + [0] * (length - len(row.ids))
            for row in rows
        ]
    )
    reference = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    model = trainer.model
    model.zero_grad()
    logprobs = answer_logprobs(model, rows, length=length)
    engine = torch.tensor([[*row.logprobs, *[0.0] * (length - len(row.ids))] for row in rows])
    loss = dapo_loss(
        logprobs,
        old_logprobs=engine if old_policy == "engine" else logprobs.detach(),
        reference_logprobs=answer_logprobs(reference, rows, length=length).detach(),
        advantages=group_advantages(torch.tensor([[r.reward.total for r in g.trajectories] for g in groups])).flatten(),
        mask=mask,
        group_size=G,
        beta=settings.kl,
        normaliser=normaliser,
    )
    loss.total.backward()
    assert theirs == pytest.approx(loss.total.item(), abs=1e-5)
    assert loss.kl > 1e-3  # the policy differs from the reference
    assert (loss.clip_frac > 0.05) == (old_policy == "engine")
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(their_gradients[name], parameter.grad, atol=1e-5, rtol=1e-4, msg=name)


def with_engine_logprobs(model, groups):
    """Return the groups with log-probabilities of an engine whose weights are slightly older."""
    from dataclasses import replace

    from tirjudge_training.groups import RolloutGroup

    rng = torch.Generator().manual_seed(3)
    changed = []
    for group in groups:
        rows = []
        for row in group.trajectories:
            with torch.no_grad():
                found = answer_logprobs(model, [row], length=len(row.ids))[0]
            found = (found + 0.3 * torch.randn(found.shape, generator=rng)) * torch.tensor(row.mask)
            rows.append(replace(row, logprobs=tuple(found.tolist())))
        changed.append(RolloutGroup(trajectories=tuple(rows)))
    return changed, [row for group in changed for row in group.trajectories]


@pytest.mark.parametrize("masked", [True, False])
def test_gradient_at_every_observation_token_is_exactly_zero(start, tmp_path, masked, monkeypatch) -> None:
    # All rows in one pass, so that the states in the hook have the order of the rows.
    monkeypatch.setattr(
        "tirjudge_training.trainers.trl.adapters.group_by_length", lambda lengths, **_: [list(range(len(lengths)))]
    )
    settings = settings_of(mask_observations=masked, per_device_batch=2 * G)
    groups = made_up_groups(num_groups=2, group_size=G, seed=4)
    trainer, runner = open_trainer(start, tmp_path, groups=groups, settings=settings)
    states = []

    def keep(module, arguments, output) -> None:
        if output.requires_grad:
            output.retain_grad()
            states.append(output)

    trainer.model.model.norm.register_forward_hook(keep)
    batches = []
    compute_loss = trainer.compute_loss

    def record_inputs(model, inputs, *arguments, **options):
        batches.append(inputs)
        return compute_loss(model, inputs, *arguments, **options)

    monkeypatch.setattr(trainer, "compute_loss", record_inputs)
    with runner:
        trl_gradients(trainer)
    (state,), (inputs,) = states, batches
    prompt, sampled, present = inputs["prompt_ids"].shape[1], inputs["tool_mask"], inputs["completion_mask"]
    # The state at a position predicts the next token, so the loss of a token has its gradient at the previous position.
    sizes = state.grad[:, prompt - 1 : -1].abs().amax(dim=-1)
    learns = (inputs["advantages"][:, None] != 0) & (sampled * present > 0)
    observed = observation_places(groups, inputs)
    assert observed.sum() > 10
    assert sizes[learns].min() > 0
    assert bool(sizes[observed].max() == 0) == masked
    assert state.grad[:, : prompt - 1].abs().max() == 0
    assert sizes[present == 0].max() == 0


def test_grouping_rows_by_length_gives_the_same_loss_as_padding(start, tmp_path, monkeypatch) -> None:
    settings = settings_of(per_device_batch=2 * G)
    groups = made_up_groups(num_groups=2, group_size=G, seed=4)
    found = []
    for together in (False, True):
        if together:
            monkeypatch.setattr(
                "tirjudge_training.trainers.trl.adapters.group_by_length",
                lambda lengths, **_: [list(range(len(lengths)))],
            )
        trainer, runner = open_trainer(start, tmp_path / str(together), groups=groups, settings=settings)
        with runner:
            found.append(trl_gradients(trainer))
    (loss, gradients), (padded_loss, padded_gradients) = found
    assert loss == pytest.approx(padded_loss, abs=1e-6)
    for name, gradient in padded_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-6, rtol=1e-4)


def observation_places(groups, inputs) -> torch.Tensor:
    """(B, T), true at program outputs. Rows are found by their ids, because TRL shuffles them."""
    masks = {row.ids: row.mask for group in groups for row in group.trajectories}
    places = torch.zeros_like(inputs["completion_ids"], dtype=torch.bool)
    for number, (ids, present) in enumerate(zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)):
        row = tuple(ids[present.bool()].tolist())
        places[number, : len(row)] = torch.tensor(masks[row]) == 0
    return places
