"""Rates and lengths as the gateway sees them; time is passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estiba_gateway.demand_meter import RATE_MEMORY_S, DemandMeter, Usage
from estiba_scheduler.domain import Demand

NOW = 1_000_000.0


def demand_of(meter: DemandMeter, now: float, deployment: str = "default/a") -> Demand:
    return meter.demand(deployment, 0, None, 0, now)


@pytest.mark.parametrize("rate", [0.1, 1.0, 20.0])
def test_a_steady_rate_is_seen_as_it_is(rate: float) -> None:
    meter, now = DemandMeter(), NOW
    for _ in range(int(rate * 10 * RATE_MEMORY_S)):
        now += 1 / rate
        meter.arrived("default/a", now)
    # just after an arrival it is above the mean, by less than that one arrival
    assert demand_of(meter, now).arrival_rate_per_s == pytest.approx(rate, abs=1 / RATE_MEMORY_S)


def test_a_rate_fades_within_minutes() -> None:
    meter = DemandMeter()
    for _ in range(60):
        meter.arrived("default/a", NOW)
    assert demand_of(meter, NOW).arrival_rate_per_s == pytest.approx(1.0)
    assert demand_of(meter, NOW + RATE_MEMORY_S).arrival_rate_per_s == pytest.approx(1 / 2.718281828)
    assert demand_of(meter, NOW + 600).arrival_rate_per_s < 1e-4


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=50))
def test_a_rate_never_exceeds_what_arrived_within_its_memory(gaps: list[float]) -> None:
    meter, now = DemandMeter(), NOW
    for gap in gaps:
        now += gap
        meter.arrived("default/a", now)
    demand = demand_of(meter, now)
    assert 0 <= demand.arrival_rate_per_s <= len(gaps) / RATE_MEMORY_S + 1e-9
    assert demand.requests_total == len(gaps)


def test_means_of_lengths_follow_what_is_served_now() -> None:
    meter = DemandMeter()
    meter.used("default/a", Usage(10, 100))
    meter.used("default/a", Usage(30, 300))
    assert (demand_of(meter, NOW).prompt_tokens_mean, demand_of(meter, NOW).output_tokens_mean) == (20, 200)
    for _ in range(200):
        meter.used("default/a", Usage(1000, 10))
    assert demand_of(meter, NOW).prompt_tokens_mean == pytest.approx(1000, rel=0.01)


def test_models_are_told_apart() -> None:
    meter = DemandMeter()
    meter.arrived("default/a", NOW)
    assert demand_of(meter, NOW, "default/b").requests_total == 0


def test_a_model_is_worth_telling_of_until_its_rate_is_nothing() -> None:
    meter = DemandMeter()
    assert not meter.worth_telling("default/a", NOW)
    meter.arrived("default/a", NOW)
    assert meter.worth_telling("default/a", NOW + 599)
    assert not meter.worth_telling("default/a", NOW + 600)


def test_deployments_that_are_gone_are_forgotten() -> None:
    meter = DemandMeter()
    meter.arrived("default/a", NOW)
    meter.keep_only(set())
    assert demand_of(meter, NOW).requests_total == 0
