"""Memory, reload, and the estimated prior."""

from __future__ import annotations

import pytest

from estiba_scheduler.domain import LoadPath, Provenance, ReloadRung, Rung
from estiba_scheduler.prediction import (
    ModelFacts,
    asleep_host_bytes,
    device_bytes,
    estimate_profile,
    host_bytes,
    idle_s,
    kv_minimum_bytes,
    kv_wanted_bytes,
    predict_tpot_s,
    quantum_s,
    resident_levels,
    smallest_device_bytes,
    start_deadline_s,
    switch_s,
    wake,
    wake_s,
)
from tests.builders import MIB, NOW, a_deployment, a_device, a_footprint, a_node, a_profile


def test_a_full_resident_model_needs_no_ring_of_buffers() -> None:
    foot = a_footprint()
    assert device_bytes(foot, 500 * MIB, 16 * MIB) == (500 + 16 + 2 + 1) * MIB
    assert device_bytes(foot, 460 * MIB, 16 * MIB) == (460 + 80 + 16 + 2 + 1) * MIB


def test_the_factor_after_an_out_of_memory_raises_the_whole_budget() -> None:
    foot = a_footprint()
    assert device_bytes(foot, 500 * MIB, 0, 1.25) == pytest.approx(1.25 * device_bytes(foot, 500 * MIB, 0), abs=1)


def test_the_load_peak_is_in_the_budget_and_falls_with_what_is_offloaded() -> None:
    foot = a_footprint(load_peak_bytes=600 * MIB)
    assert device_bytes(foot, 500 * MIB, 0) == 600 * MIB
    assert device_bytes(foot, 300 * MIB, 0) == 400 * MIB


def test_host_bytes_carry_the_measured_factor() -> None:
    assert host_bytes(a_footprint(host_factor=1.9), 300 * MIB) == 380 * MIB


def test_a_sleeper_of_unknown_host_bytes_is_charged_all_weights() -> None:
    assert asleep_host_bytes(a_footprint(sleep1_host_bytes=0, host_factor=1.5), Rung.SLEEP1) == 750 * MIB


def test_residency_goes_by_whole_layers() -> None:
    levels = resident_levels(a_footprint())
    assert levels[0] == 100 * MIB
    assert levels[1] == 140 * MIB
    assert levels[-1] == 500 * MIB
    assert resident_levels(a_footprint().model_copy(update={"layer_bytes": ()})) == (500 * MIB,)


def test_kv_cache_is_at_least_one_full_sequence() -> None:
    deployment, foot = a_deployment(), a_footprint()
    assert kv_minimum_bytes(deployment, foot) == 512 * 16 * 1024
    assert kv_wanted_bytes(deployment, foot) == 4 * 512 * 16 * 1024
    assert kv_minimum_bytes(a_deployment(kv_bytes_wanted=1024), foot) == 1024


def test_the_smallest_budget_obeys_the_policies() -> None:
    foot = a_footprint()
    assert smallest_device_bytes(a_deployment(), foot) == device_bytes(foot, 100 * MIB, 8 * MIB)
    never = a_deployment(policies={"offload": "Never"})
    assert smallest_device_bytes(never, foot) == device_bytes(foot, 500 * MIB, 8 * MIB)
    half = a_deployment(policies={"min_resident_fraction": 0.5})
    assert smallest_device_bytes(half, foot) == device_bytes(foot, 260 * MIB, 8 * MIB)


def test_a_measured_rung_wins_and_a_missing_one_is_estimated() -> None:
    profile = a_profile()
    assert wake_s(profile, Rung.SLEEP1) == 0.4
    bare = profile.model_copy(update={"reload": ()})
    assert wake(bare, Rung.COLD).provenance is Provenance.ESTIMATED
    assert wake_s(bare, Rung.COLD) > wake_s(bare, Rung.SLEEP1)
    unmeasured = ReloadRung(rung=Rung.COLD, seconds_s=0, samples=0, fixed_s=2, bytes_per_s=100 * MIB)
    assert wake_s(profile.model_copy(update={"reload": (unmeasured,)}), Rung.COLD) == pytest.approx(7.0)


def test_idle_times_follow_from_the_reload_cost() -> None:
    small = a_profile(ladder={"sleep1": (0.5, 0.3)})
    large = a_profile(ladder={"cold": (60, 1)})
    assert 2 <= idle_s(small, Rung.SLEEP1) <= 9
    assert 180 <= idle_s(large, Rung.COLD) <= 600


def test_taking_turns_costs_at_most_a_tenth_of_the_time() -> None:
    a, b = a_profile(ladder={"sleep1": (0.5, 0.3)}), a_profile(ladder={"sleep1": (2, 1)})
    lost = switch_s(a, Rung.SLEEP1) + switch_s(b, Rung.SLEEP1)
    assert lost / (quantum_s(a, Rung.SLEEP1) + quantum_s(b, Rung.SLEEP1)) <= 0.1 + 1e-9


def test_z5_the_start_deadline_follows_from_the_profile_or_the_size() -> None:
    assert start_deadline_s(a_profile()) == 60
    assert start_deadline_s(a_profile(ladder={"cold": (120, 1)})) == 600
    unknown = a_profile(footprint=a_footprint(weight_mib=140_000)).model_copy(update={"reload": ()})
    assert start_deadline_s(unknown) > 1000


FACTS = ModelFacts(
    weight_bytes=500 * MIB, fixed_bytes=100 * MIB, layer_bytes=(40 * MIB,) * 10, kv_bytes_per_token=16384
)


def test_an_estimate_is_labelled_in_every_part() -> None:
    device = a_device(memory_bandwidth_bytes_per_s=10e9)
    node = a_node([device])
    made = estimate_profile(
        a_profile().key, FACTS, device, node.links[0], (LoadPath(name="disk", bytes_per_s=1e9),), NOW
    )
    assert made.measured_at == 0
    assert made.footprint.provenance is Provenance.ESTIMATED
    assert {k.provenance for k in made.sensitivity.knots} == {Provenance.ESTIMATED}
    assert {r.provenance for r in made.reload} == {Provenance.ESTIMATED}
    assert predict_tpot_s(made, resident_fraction=1.0).tpot_s == pytest.approx(500 * MIB / 6e9, rel=0.01)
    assert wake_s(made, Rung.SLEEP1) < wake_s(made, Rung.COLD)


def test_an_estimate_needs_nothing_but_the_size() -> None:
    bare = ModelFacts(weight_bytes=500 * MIB, fixed_bytes=500 * MIB, kv_bytes_per_token=0)
    made = estimate_profile(a_profile().key, bare, a_device())
    assert predict_tpot_s(made, resident_fraction=1.0).tpot_s > 0
