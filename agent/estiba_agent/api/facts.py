"""What the metrics API tells: read when it is asked, so that it is the same as what the status says."""

from __future__ import annotations

from typing import Protocol

from estiba_scheduler.domain import ModelProfile, Node

from .bodies import InstanceView, JobView


class Facts(Protocol):
    def node(self) -> Node | None:
        """As last reported; None before the devices were read for the first time."""
        ...

    def instances(self) -> list[InstanceView]: ...
    def profiles(self) -> list[ModelProfile]:
        """Those that this agent measured, and has a copy of."""
        ...

    def jobs(self) -> list[JobView]: ...

    @property
    def store_reachable(self) -> bool: ...

    @property
    def store_dropped(self) -> int:
        """Writes given up because the buffer was full."""
        ...

    def pulse_age_s(self) -> float:
        """Seconds since the supervisor last did its round."""
        ...
