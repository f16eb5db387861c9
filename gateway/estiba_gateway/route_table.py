"""What the gateway knows at one moment: the deployments by name, and where each is served. An immutable value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from estiba_scheduler.domain import Deployment, InstanceState, InstanceStatus

DEFAULT_NAMESPACE = "default"


class MetState(StrEnum):
    """The state of a model when a request for it arrived: that of its instance which is nearest to serving."""

    READY = "Ready"
    STARTING = "Starting"
    ASLEEP1 = "Asleep1"
    ASLEEP2 = "Asleep2"
    PENDING = "Pending"
    DRAINING = "Draining"
    UNRESPONSIVE = "Unresponsive"  # Ready once, and silent since
    FAILED = "Failed"
    ABSENT = "Absent"


NEAREST_FIRST = tuple(MetState)


class NoSuchModel(Exception):
    """No deployment has this name. `str()` says so to a client."""


class AmbiguousModel(Exception):
    """Several namespaces have a deployment of this name, and none of them is the default one."""


@dataclass(frozen=True, slots=True)
class Route:
    """One ready instance. Two routes are equal as long as the agent has seen nothing new about it."""

    instance: str
    url: str
    since: float
    generation: int
    boot_id: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class RouteTable:
    deployments: dict[str, Deployment] = field(default_factory=dict)
    statuses: dict[str, tuple[InstanceStatus, ...]] = field(default_factory=dict)
    routes: dict[str, tuple[Route, ...]] = field(default_factory=dict)
    by_name: dict[str, tuple[Deployment, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, deployments: Iterable[Deployment], statuses: Iterable[InstanceStatus]) -> RouteTable:
        """A table of these; instances of deployments that aren't there are left out."""
        known = {d.id: d for d in sorted(deployments, key=lambda d: d.id)}
        by_name: dict[str, tuple[Deployment, ...]] = {}
        for deployment in known.values():
            by_name[deployment.name] = (*by_name.get(deployment.name, ()), deployment)
        seen: dict[str, tuple[InstanceStatus, ...]] = {}
        for status in sorted(statuses, key=lambda s: s.id):
            if status.deployment in known:
                seen[status.deployment] = (*seen.get(status.deployment, ()), status)
        routes = {
            id: tuple(_route(status) for status in of_one if _serves(known[id], status)) for id, of_one in seen.items()
        }
        return cls(known, seen, routes, by_name)

    def find(self, name: str) -> Deployment:
        """The deployment that a client means by `name` or `namespace/name`.

        A name that several namespaces have means the one in `default`. Raises NoSuchModel or AmbiguousModel.
        """
        if name in self.deployments:
            return self.deployments[name]
        candidates = self.by_name.get(name, ())
        if len(candidates) == 1:
            return candidates[0]
        for candidate in candidates:
            if candidate.namespace == DEFAULT_NAMESPACE:
                return candidate
        if candidates:
            names = ", ".join(d.id for d in candidates)
            raise AmbiguousModel(f"several namespaces have a model {name!r}; ask for one of {names}")
        raise NoSuchModel(f"there is no model {name[:200]!r}; GET /v1/models lists those that are")

    def public_name(self, deployment: Deployment) -> str:
        """How it is listed: its name, or `namespace/name` where the name alone would not say which."""
        return deployment.name if len(self.by_name[deployment.name]) == 1 else deployment.id

    def routes_of(self, deployment: str) -> tuple[Route, ...]:
        return self.routes.get(deployment, ())

    def statuses_of(self, deployment: str) -> tuple[InstanceStatus, ...]:
        return self.statuses.get(deployment, ())

    def state_of(self, deployment: str) -> MetState:
        if self.routes_of(deployment):
            return MetState.READY
        states = {_met(status) for status in self.statuses_of(deployment)}
        return next((state for state in NEAREST_FIRST if state in states), MetState.ABSENT)


def _serves(deployment: Deployment, status: InstanceStatus) -> bool:
    """It is ready, and has the weights that the deployment has now, as far as both are known."""
    if status.state is not InstanceState.READY or not status.url or not status.url.startswith("http://"):
        return False
    wanted, served = deployment.model.digest, status.identity.model_digest if status.identity else ""
    return not wanted or not served or wanted == served


def _route(status: InstanceStatus) -> Route:
    return Route(
        instance=status.id,
        url=(status.url or "").rstrip("/"),
        since=status.state_since,
        generation=status.settled_generation,
        boot_id=status.identity.boot_id if status.identity else "",
        pid=status.identity.pid if status.identity else None,
    )


def _met(status: InstanceStatus) -> MetState:
    if status.state is InstanceState.READY:
        # without a route: it has no address, or the weights of another deployment generation
        return MetState.UNRESPONSIVE if not status.url else MetState.ABSENT
    if status.state is InstanceState.EVICTED:
        return MetState.ABSENT
    return MetState(status.state.value)
