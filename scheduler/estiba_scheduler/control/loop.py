"""observe -> snapshot -> plan -> re-check -> act: about once a second, and at once where somebody kicks."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from ..domain import Action, ActionKind, Instance, InstanceState, Plan, PlannerMemory, Snapshot, Verdict
from ..policies import PlanFunction
from ..store import Decision
from .actuate import changed, started
from .effects import CannotObserve, EffectFailed, Effects, Observed, Observer
from .recheck import Recheck

log = logging.getLogger(__name__)

PERIOD_S = 1.0
IN_TRANSIT_S = 0.2
"""The next look while something is on its way: what waits for its room is not to wait for a whole period, too."""
LEAST_GAP_S = 0.05
"""Kicks closer together than that are one."""
EFFECT_DEADLINE_S = 10.0
FIRST_BACK_OFF_S = 0.5
LAST_BACK_OFF_S = 30.0
VERDICT = "Verdict"


class ControlLoop:
    """One decider. Its own memory is small and may be lost; what is wanted of instances is kept by their agents."""

    def __init__(
        self,
        observer: Observer,
        effects: Effects,
        decide: PlanFunction,
        clock: Callable[[], float],
        new_id: Callable[[str], str] | None = None,
        period_s: float = PERIOD_S,
        in_transit_s: float = IN_TRANSIT_S,
        effect_deadline_s: float = EFFECT_DEADLINE_S,
    ) -> None:
        self._observer = observer
        self._effects = effects
        self._decide = decide
        self._clock = clock
        self._new_id = new_id or (lambda name: f"{name}-{secrets.token_hex(2)}")
        self._period_s = period_s
        self._in_transit_s = in_transit_s
        self._effect_deadline_s = effect_deadline_s
        self._memory = PlannerMemory()
        self._kicked = asyncio.Event()
        self._said: dict[str, Verdict] = {}
        self._failing: dict[str, tuple[int, float]] = {}
        self.snapshot = Snapshot()
        self.plan = Plan()
        self.problems: tuple[str, ...] = ("nothing was observed yet",)
        self.passes = 0
        self.last_pass_s = 0.0

    def kick(self) -> None:
        """The next pass is due now."""
        self._kicked.set()

    async def run(self) -> None:
        """Until cancelled. A pass that breaks is logged, and the next one is made."""
        while True:
            began = self._clock()
            self._kicked.clear()
            try:
                await self.one_pass()
            except CannotObserve as error:
                self._complain(str(error))
            except Exception as error:
                log.exception("a pass of the loop broke")
                self._complain(f"the last pass broke: {type(error).__name__}: {error}")
            self.last_pass_s = self._clock() - began
            await self._until_due()

    async def one_pass(self) -> None:
        """Raises CannotObserve, and what the planner raises; one failing effect is only logged."""
        observed = await self._observer.observe()
        self._take(observed)
        plan = self._decide(self.snapshot, self._clock())
        acted = await self._act(plan) if plan.actions else []
        # What was not carried out must not be remembered as done.
        self._memory = plan.memory if len(acted) == len(plan.actions) else _undone(plan, self._memory, acted)
        self.plan = plan
        self.passes += 1
        self._tell_verdicts(plan)
        await self._forget_gone()

    # -- observing --------------------------------------------------------------------------------------------------

    def _take(self, observed: Observed) -> None:
        self.snapshot = observed.snapshot(self._memory)
        self.problems = observed.problems
        here = {instance.id for instance in observed.instances}
        self._failing = {key: at for key, at in self._failing.items() if key in here or "/" in key}

    def _complain(self, problem: str) -> None:
        if problem not in self.problems:
            log.warning("%s; nothing is decided until that is over", problem)
        self.problems = (problem,)

    async def _until_due(self) -> None:
        wait_s = self._period_s
        if self.plan.actions or any(not instance.settled for instance in self.snapshot.instances):
            wait_s = min(wait_s, self._in_transit_s)
        if self.plan.next_pass_s is not None:
            wait_s = min(wait_s, max(LEAST_GAP_S, self.plan.next_pass_s))
        await asyncio.sleep(LEAST_GAP_S)
        try:
            async with asyncio.timeout(max(0.0, wait_s - LEAST_GAP_S)):
                await self._kicked.wait()
        except TimeoutError:
            pass

    # -- acting -----------------------------------------------------------------------------------------------------

    async def _act(self, plan: Plan) -> list[Action]:
        """The actions that were carried out, of those that a second look at the world left standing."""
        fresh = (await self._observer.observe()).snapshot(self._memory)
        recheck = Recheck(fresh, self._clock())
        known = {instance.id: instance for instance in fresh.instances}
        doing: list[Action] = []
        for action in plan.actions:
            objection = recheck.objection(action) or self._backing_off(action)
            if objection is not None:
                log.info("%s of %s is left out: %s", action.kind, action.instance or action.deployment, objection)
                continue
            recheck.accept(action)
            doing.append(action)
        results = await asyncio.gather(*(self._carry_out(action, fresh, known) for action in doing))
        return [action for action, done in zip(doing, results, strict=True) if done]

    async def _carry_out(self, action: Action, fresh: Snapshot, known: dict[str, Instance]) -> bool:
        if action.kind is ActionKind.START:
            deployment = next(d for d in fresh.deployments if d.id == action.deployment)
            spec = started(action, deployment, self._new_id(deployment.name))
        else:
            assert action.instance is not None
            spec = changed(action, known[action.instance])
        key = action.instance or action.deployment
        try:
            async with asyncio.timeout(self._effect_deadline_s):
                await self._effects.want(spec)
        except (EffectFailed, TimeoutError) as error:
            failures = self._failing.get(key, (0, 0.0))[0] + 1
            pause_s = min(LAST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** (failures - 1))
            self._failing[key] = (failures, self._clock() + pause_s)
            log.warning("%s of %s failed: %s", action.kind, key, error or "no answer in time")
            return False
        self._failing.pop(key, None)
        self._effects.record(
            Decision(
                at=self._clock(),
                deployment=action.deployment,
                instance=spec.id,
                kind=action.kind.value,
                reason=action.reason,
                message=action.message,
                numbers=action.numbers,
            )
        )
        return True

    def _backing_off(self, action: Action) -> str | None:
        failing = self._failing.get(action.instance or action.deployment)
        if failing is None or self._clock() >= failing[1]:
            return None
        return f"it failed {failing[0]} times, and is tried again later"

    async def _forget_gone(self) -> None:
        """Instances that were evicted and are gone. Failed ones stay until the planner has evicted them."""
        for instance in self.snapshot.instances:
            if instance.state is InstanceState.EVICTED and instance.settled:
                try:
                    async with asyncio.timeout(self._effect_deadline_s):
                        await self._effects.forget(instance)
                except (EffectFailed, TimeoutError) as error:
                    log.info("%s is not forgotten yet: %s", instance.id, error or "no answer in time")

    # -- telling ----------------------------------------------------------------------------------------------------

    def _tell_verdicts(self, plan: Plan) -> None:
        """Each change of a verdict's reason once; the numbers in its sentence change all the time."""
        for verdict in plan.verdicts:
            said = self._said.get(verdict.deployment)
            if said is None or said.reason is not verdict.reason:
                self._effects.record(
                    Decision(
                        at=self._clock(),
                        deployment=verdict.deployment,
                        kind=VERDICT,
                        reason=verdict.reason,
                        message=verdict.message,
                        numbers=verdict.numbers,
                    )
                )
        self._said = {verdict.deployment: verdict for verdict in plan.verdicts}


def _undone(plan: Plan, before: PlannerMemory, acted: list[Action]) -> PlannerMemory:
    """The plan's memory, without the switches and resizes that were not carried out."""
    left_out = [action for action in plan.actions if action not in acted]
    deployments = {a.deployment for a in left_out if a.kind is not ActionKind.RESIZE}
    devices = {a.device for a in left_out if a.kind is ActionKind.RESIZE}
    return plan.memory.model_copy(
        update={
            "last_switch_at": _restored(plan.memory.last_switch_at, before.last_switch_at, deployments),
            "last_resize_at": _restored(plan.memory.last_resize_at, before.last_resize_at, devices),
        }
    )


def _restored(new: dict[str, float], old: dict[str, float], names: set[str]) -> dict[str, float]:
    kept = {name: at for name, at in new.items() if name not in names}
    return kept | {name: old[name] for name in names if name in old}
