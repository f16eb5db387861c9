"""The plan in the making: decisions so far, the ledger they changed, and what the next pass must remember."""

from __future__ import annotations

from ..domain import (
    Action,
    ActionKind,
    BackOff,
    Deployment,
    Device,
    Instance,
    ModelProfile,
    Plan,
    PlannerMemory,
    Reason,
    Reservation,
    Rung,
    Snapshot,
    Verdict,
)
from ..prediction import start_deadline_s
from .allotment import Allotment
from .cluster import Cluster, going
from .ledger import Ledger
from .rungs import PutAway
from .standing import Standing, standing_of

START_MARGIN_S = 30.0
"""What a reservation waits beyond the victims' own deadlines."""


class Draft:
    """State of one pass. Every step reads it and adds to it; nothing of it outlives the pass but the Plan."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        memory = snapshot.memory
        self.now = now
        self.cluster = Cluster(snapshot, now)
        self.factors = dict(memory.footprint_factor)
        self.ledger = Ledger(self.cluster, self.factors)
        self.actions: list[Action] = []
        self.acted: set[str] = set()
        self.verdicts: dict[str, Verdict] = {}
        self.reservations = {(r.deployment, r.device): r for r in memory.reservations}
        self.back_offs = {b.deployment: b for b in memory.back_offs}
        self.last_switch_at = dict(memory.last_switch_at)
        self.last_resize_at = dict(memory.last_resize_at)
        self.standings: dict[str, Standing] = {
            d.id: standing_of(self.cluster, d, memory.last_busy_at.get(d.id)) for d in self.cluster.deployments.values()
        }
        self.unplannable: set[str] = set()
        self._due: list[float] = []

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def plannable(self) -> list[Standing]:
        return [s for s in self.standings.values() if s.id not in self.unplannable]

    def profile(self, standing: Standing, device: str) -> ModelProfile | None:
        return self.cluster.profile(standing.id, device)

    def rivals(self, device: Device) -> list[Standing]:
        """Deployments whose running instances may stream over the same host link."""
        on_link = {
            i.spec.deployment
            for i in self.cluster.instances
            if not going(i) and self._same_link(i.spec.device, device) and self.is_up(i)
        }
        return [s for s in self.standings.values() if s.id in on_link]

    def is_up(self, instance: Instance) -> bool:
        standing = self.standings.get(instance.spec.deployment)
        return standing is not None and instance in standing.up

    def _same_link(self, uuid: str, device: Device) -> bool:
        other = self.cluster.devices.get(uuid)
        return other is not None and other.node == device.node and other.host_link == device.host_link

    # -- times --------------------------------------------------------------------------------------------------

    def due(self, at: float) -> None:
        """A decision may change at this time: look again by then."""
        if at > self.now:
            self._due.append(at)

    # -- decisions ----------------------------------------------------------------------------------------------

    def say(
        self,
        deployment: str,
        reason: Reason,
        message: str,
        tpot_s: float | None = None,
        wake_s: float | None = None,
        **numbers: float,
    ) -> None:
        """The verdict on a deployment; the first one said stays."""
        if deployment not in self.verdicts:
            self.verdicts[deployment] = Verdict(
                deployment=deployment,
                reason=reason,
                message=message,
                numbers=numbers,
                predicted_tpot_s=tpot_s,
                wake_s=wake_s,
            )

    def start(self, deployment: Deployment, device: Device, given: Allotment, reason: Reason, message: str) -> None:
        self._run(ActionKind.START, deployment, device, None, given, reason, message)

    def wake(
        self, deployment: Deployment, device: Device, instance: Instance, given: Allotment, reason: Reason, message: str
    ) -> None:
        self._run(ActionKind.WAKE, deployment, device, instance, given, reason, message)

    def resize(
        self,
        instance: Instance,
        given: Allotment,
        reason: Reason,
        message: str,
        beneficiary: str | None = None,
    ) -> None:
        spec = instance.spec
        self.last_resize_at[spec.device] = self.now
        self._act(
            Action(
                kind=ActionKind.RESIZE,
                deployment=spec.deployment,
                instance=spec.id,
                node=spec.node,
                device=spec.device,
                resident_bytes=given.resident_bytes,
                kv_bytes=given.kv_bytes,
                budget_bytes=given.budget_bytes,
                expected_generation=spec.generation,
                beneficiary=beneficiary,
                reason=reason,
                message=message,
                numbers={"tpot_s": given.tpot_s, "before_budget_bytes": float(spec.budget_bytes)},
            ),
            given.budget_bytes,
            given.host_bytes,
        )

    def put_away(
        self,
        instance: Instance,
        way: PutAway,
        reason: Reason,
        message: str,
        beneficiary: str | None = None,
        **numbers: float,
    ) -> None:
        """Put an instance on a rung of the ladder: a sleep, or an eviction. `numbers` are those that decided."""
        if way.rung is Rung.COLD:
            self.evict(instance, reason, message, beneficiary, **numbers)
            return
        spec = instance.spec
        self.last_switch_at[spec.deployment] = self.now
        self._act(
            Action(
                kind=ActionKind.SLEEP,
                deployment=spec.deployment,
                instance=spec.id,
                node=spec.node,
                device=spec.device,
                level=way.level,
                budget_bytes=way.device_bytes,
                expected_generation=spec.generation,
                beneficiary=beneficiary,
                reason=reason,
                message=message,
                numbers={
                    "wake_s": way.wake_s,
                    "freed_bytes": float(max(0, spec.budget_bytes - way.device_bytes)),
                    **numbers,
                },
            ),
            way.device_bytes,
            way.host_bytes,
        )

    def evict(
        self, instance: Instance, reason: Reason, message: str, beneficiary: str | None = None, **numbers: float
    ) -> None:
        spec = instance.spec
        self.last_switch_at[spec.deployment] = self.now
        self._act(
            Action(
                kind=ActionKind.EVICT,
                deployment=spec.deployment,
                instance=spec.id,
                node=spec.node,
                device=spec.device,
                expected_generation=spec.generation,
                beneficiary=beneficiary,
                reason=reason,
                message=message,
                numbers=numbers,
            ),
            0,
            0,
        )

    def reserve(self, deployment: str, device: str, n_bytes: int, expires_at: float) -> None:
        """Keep room for one deployment; a reservation that stands keeps its expiry."""
        old = self.reservations.get((deployment, device))
        until = old.expires_at if old else expires_at
        self.reservations[deployment, device] = Reservation(
            deployment=deployment, device=device, bytes=n_bytes, expires_at=until
        )
        self.ledger.reserve(deployment, device, n_bytes)
        self.due(until)

    def release(self, deployment: str, device: str | None = None) -> None:
        for owner, on in list(self.reservations):
            if owner == deployment and device in (None, on):
                del self.reservations[owner, on]
                self.ledger.release(owner, on)

    def finish(self) -> Plan:
        known = self.cluster.deployments
        memory = PlannerMemory(
            reservations=tuple(self.reservations[k] for k in sorted(self.reservations)),
            back_offs=tuple(self.back_offs[k] for k in sorted(self.back_offs) if k in known),
            last_switch_at={k: v for k, v in sorted(self.last_switch_at.items()) if k in known},
            last_resize_at={k: v for k, v in sorted(self.last_resize_at.items()) if k in self.cluster.devices},
            last_busy_at={s.id: s.last_busy_at for s in self.standings.values() if s.last_busy_at is not None},
            footprint_factor=dict(sorted(self.factors.items())),
        )
        for back_off in memory.back_offs:
            self.due(back_off.retry_at)
        return Plan(
            actions=tuple(self.actions),
            verdicts=tuple(self.verdicts[k] for k in sorted(self.verdicts)),
            memory=memory,
            next_pass_s=min(self._due) - self.now if self._due else None,
        )

    def fail(self, deployment: str, failures: int, retry_at: float) -> None:
        self.back_offs[deployment] = BackOff(deployment=deployment, failures=failures, retry_at=retry_at)

    def _run(
        self,
        kind: ActionKind,
        deployment: Deployment,
        device: Device,
        instance: Instance | None,
        given: Allotment,
        reason: Reason,
        message: str,
    ) -> None:
        profile = self.cluster.profile(deployment.id, device.uuid)
        self.last_switch_at[deployment.id] = self.now
        self.release(deployment.id)
        key = instance.id if instance else f"new:{deployment.id}:{device.uuid}"
        self._act(
            Action(
                kind=kind,
                deployment=deployment.id,
                instance=instance.id if instance else None,
                node=device.node,
                device=device.uuid,
                resident_bytes=given.resident_bytes,
                kv_bytes=given.kv_bytes,
                budget_bytes=given.budget_bytes,
                start_deadline_s=start_deadline_s(profile) if profile else 300.0,
                expected_generation=instance.spec.generation if instance else None,
                reason=reason,
                message=message,
                numbers={"tpot_s": given.tpot_s},
            ),
            given.budget_bytes,
            given.host_bytes,
            key,
        )

    def _act(self, action: Action, device_then: int, host_then: int, key: str | None = None) -> None:
        name = key or action.instance
        assert name is not None, "only a start has no instance, and it brings its key"
        self.actions.append(action)
        self.acted.add(name)
        self.ledger.change(name, action.device, action.node, device_then, host_then)
