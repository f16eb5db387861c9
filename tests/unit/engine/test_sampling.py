"""Tokens are picked as OpenAI's parameters say."""

from __future__ import annotations

import torch

from estiba_agent.engines.torch.request import SamplingParams
from estiba_agent.engines.torch.sampling import Sampler

LOGITS = torch.tensor([1.0, 3.0, 2.0, 2.9])


def drawn(params: SamplingParams, times: int = 200, logits: torch.Tensor = LOGITS) -> list[int]:
    sampler = Sampler(params)
    return [sampler.pick(logits) for _ in range(times)]


def test_temperature_zero_is_greedy() -> None:
    assert set(drawn(SamplingParams(temperature=0))) == {1}


def test_a_seed_makes_draws_repeatable() -> None:
    params = SamplingParams(temperature=1.5, seed=7)
    assert drawn(params) == drawn(params)


def test_different_seeds_differ() -> None:
    assert drawn(SamplingParams(seed=1)) != drawn(SamplingParams(seed=2))


def test_every_token_can_be_drawn_when_nothing_limits() -> None:
    assert set(drawn(SamplingParams(temperature=2, seed=0))) == {0, 1, 2, 3}


def test_top_k_draws_from_the_k_likeliest() -> None:
    assert set(drawn(SamplingParams(temperature=2, top_k=2, seed=0))) == {1, 3}


def test_a_tiny_top_p_leaves_the_likeliest() -> None:
    assert set(drawn(SamplingParams(temperature=2, top_p=0.01, seed=0))) == {1}


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    shares = torch.tensor([0.25, 0.4, 0.35]).log()
    assert set(drawn(SamplingParams(top_p=0.5, seed=0), logits=shares)) == {1, 2}


def test_a_bias_of_minus_100_bans_a_token() -> None:
    assert drawn(SamplingParams(temperature=0, logit_bias=((1, -100.0),)), times=1) == [3]


def test_a_bias_of_100_forces_a_token() -> None:
    assert drawn(SamplingParams(temperature=0, logit_bias=((0, 100.0),)), times=3) == [0, 0, 0]


def test_a_presence_penalty_counts_once() -> None:
    assert drawn(SamplingParams(temperature=0, presence_penalty=0.5), times=5) == [1, 3, 1, 1, 1]


def test_a_frequency_penalty_grows_with_each_use() -> None:
    assert drawn(SamplingParams(temperature=0, frequency_penalty=0.6), times=5) == [1, 3, 1, 3, 2]


def test_the_model_s_logits_are_left_as_they_are() -> None:
    before = LOGITS.clone()
    drawn(SamplingParams(presence_penalty=1.0, logit_bias=((0, 5.0),), seed=0), times=5)
    assert torch.equal(before, LOGITS)
