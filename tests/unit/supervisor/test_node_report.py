"""What is reported of the node is what was read, and what is kept is kept whole."""

from __future__ import annotations

from pathlib import Path

from estiba_agent.config import AgentConfig
from estiba_agent.host_memory import host_budget_bytes, host_free_bytes
from estiba_agent.node_report import Reading, node_of
from estiba_agent.profile_copies import ProfileCopies
from estiba_scheduler.domain import DeviceHealth
from tests.builders import MIB, a_device, a_profile

CONFIG = AgentConfig(node="n1", state_dir=Path("/x"), redis_url="unix:///r", host_memory_bytes=100 * MIB)


def test_a_device_with_a_leak_is_not_healthy_and_says_why() -> None:
    """M7."""
    reading = Reading((a_device("cpu-0"), a_device("cpu-1")), ())
    node = node_of(CONFIG, reading, {"cpu-0": "9 MiB of a-1 did not come back"}, None, 1.0)
    assert [d.health for d in node.devices] == [DeviceHealth.LEAKED, DeviceHealth.HEALTHY]
    assert "a-1" in node.devices[0].detail


def test_a_device_that_can_t_be_asked_stays_unavailable() -> None:
    """N2."""
    reading = Reading((a_device("cpu-0", health=DeviceHealth.UNAVAILABLE, free_bytes=None),), ())
    node = node_of(CONFIG, reading, {"cpu-0": "a leak"}, None, 1.0)
    assert node.devices[0].health is DeviceHealth.UNAVAILABLE
    assert node.devices[0].free_bytes is None


def test_host_memory_is_what_is_configured_or_half_of_what_the_cgroup_has(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{64 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{60 * MIB}\n")
    assert host_budget_bytes(5, tmp_path) == 5
    assert host_budget_bytes(None, tmp_path) == 32 * MIB
    assert host_free_bytes(tmp_path) == 4 * MIB
    (tmp_path / "memory.max").write_text("max\n")
    assert host_budget_bytes(None, tmp_path) > 64 * MIB
    assert host_free_bytes(tmp_path) > 4 * MIB


def test_profiles_are_kept_by_key_and_an_unreadable_copy_is_set_aside(tmp_path: Path) -> None:
    copies = ProfileCopies(tmp_path)
    first = a_profile(measured_at=1.0)
    copies.keep(first)
    copies.keep(a_profile("b"))
    newer = first.model_copy(update={"measured_at": 2.0})
    copies.keep(newer)
    (tmp_path / "broken.json").write_text("{")
    again = ProfileCopies(tmp_path)
    assert {p.key.model_digest: p.measured_at for p in again.all()}["a"] == 2.0
    assert len(again.all()) == 2
    assert (tmp_path / "broken.bad").exists()
