"""The supervisor's state machine: events in, instructions out. No I/O and no clock; `now` is passed in.

One machine looks after all instances of a node, because they take turns on its devices. Everything that happened to an
instance can be printed (`story`) and replayed: the same events give the same instructions.
"""

from __future__ import annotations

from estiba_agent.engines.wire import EnginePhase
from estiba_scheduler.domain import InstanceSpec, InstanceState, InstanceStatus, Reason

from . import course, events, instructions
from .answers import call_done, call_failed, drain_overran, judge_offload
from .course import Patience, Step, next_step, state_of
from .diagnosis import of_exit
from .events import CallKind, DeviceSeen, Event
from .instructions import Instruction
from .leaks import Leaks
from .record import Failure, InstanceRecord
from .requests import request_for
from .room import Guest, Room
from .status import status_of
from .story import Story
from .supervised import InFlight, Note, Stopping, Supervised, remembered

STEPS_AT_ONCE = 16
FORGIVEN_AFTER_S = 60.0
"""Ready for this long, and earlier failures no longer count."""


class Machine:
    """All instances of one node. `handle` is the only way in; the rest reads."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._instances: dict[str, Supervised] = {}
        self._guests: dict[str, Guest] = {}
        self._devices: dict[str, DeviceSeen] = {}
        self._devices_at = 0.0
        self._leaks = Leaks()
        self._kept: dict[str, InstanceRecord] = {}
        self._told: dict[str, InstanceStatus] = {}
        self._stories: dict[str, Story] = {}
        self._calls = 0
        self._shut_down = False

    # -- reading ----------------------------------------------------------------------------------------------------

    def spec(self, instance: str) -> InstanceSpec | None:
        known = self._instances.get(instance)
        return known.spec if known else None

    def status(self, instance: str, now: float) -> InstanceStatus:
        """Raises KeyError for an unknown instance."""
        i = self._instances[instance]
        return status_of(i, self._room(i.spec.device), now, self._patience.silent_s)

    def instances(self) -> tuple[str, ...]:
        return tuple(sorted(self._instances))

    def story(self, instance: str) -> Story:
        """Raises KeyError for an instance that was never known, or is forgotten."""
        return self._stories[instance]

    def forgettable(self, instance: str) -> bool:
        """It is over, and holds no process."""
        i = self._instances[instance]
        over = i.state in (InstanceState.EVICTED, InstanceState.FAILED)
        return over and i.identity is None and not i.spawning and i.left_at is None

    def leaks(self) -> dict[str, str]:
        """Device -> what was not given back, in a sentence."""
        return self._leaks.sentences()

    @property
    def memory_awaited(self) -> bool:
        return any(i.left_at is not None for i in self._instances.values())

    @property
    def all_gone(self) -> bool:
        return all(i.identity is None and not i.spawning and i.left_at is None for i in self._instances.values())

    # -- the way in -------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event in. Records to keep come first, then what is to be done, then what is to be reported."""
        done: dict[str, list[Instruction]] = {}
        named = self._enter(event, now, done)
        quiet = isinstance(event, events.EngineStateSeen) and named is not None and not self._stirs(event, named)
        stirred: list[Supervised] = [named] if quiet and named else self._in_order()
        for i in stirred:
            done.setdefault(i.id, []).extend(self._advance(i, now))
        if named is not None:
            named.phase_told = named.phase
        for_guests = self._guests_turn()
        keeps: list[Instruction] = []
        reports: list[Instruction] = []
        for i in stirred:
            told = self._tell(i, now)
            keeps += [t for t in told if isinstance(t, instructions.Keep)]
            reports += [t for t in told if isinstance(t, instructions.Report)]
            self._write_story(i, event, named, quiet, [*done.get(i.id, []), *told], now)
        acts = [instruction for each in done.values() for instruction in each]
        if isinstance(event, events.EngineCallDone | events.EngineCallFailed | events.ProcessExited):
            acts.append(instructions.LookAtDevices())
        return [*keeps, *acts, *for_guests, *reports]

    def _stirs(self, event: events.EngineStateSeen, i: Supervised) -> bool:
        """May change what others can do."""
        return event.state.phase is not i.phase_told

    # -- events -----------------------------------------------------------------------------------------------------

    def _enter(self, event: Event, now: float, done: dict[str, list[Instruction]]) -> Supervised | None:
        """Take the facts in; the instance that they are about."""
        match event:
            case events.SpecWanted():
                return self._want(event.spec, now)
            case events.Remembered():
                return self._remember(event, now)
            case events.DevicesSeen():
                self._devices = {device.uuid: device for device in event.devices}
                self._devices_at = event.asked_at
                self._leaks.check(self._room)
            case events.GuestWanted():
                self._guests[event.owner] = Guest(event.owner, event.device, event.budget_bytes)
            case events.GuestStarted():
                if event.owner in self._guests:
                    self._guests[event.owner].loading = False
            case events.GuestGone():
                self._guests.pop(event.owner, None)
            case events.Forgotten():
                if self._instances.pop(event.instance, None):
                    for table in (self._kept, self._told, self._stories):
                        table.pop(event.instance, None)
                    done[event.instance] = [instructions.Drop(event.instance)]
            case events.ShutdownWanted():
                self._shut_down = True
                for each in self._instances.values():
                    each.shut_down = True
            case events.Tick():
                pass
            case _:
                i = self._instances.get(event.instance)
                if i is not None:
                    self._engine_event(i, event, now, done.setdefault(i.id, []))
                return i
        return None

    def _want(self, spec: InstanceSpec, now: float) -> Supervised:
        i = self._instances.get(spec.id)
        if i is None:
            i = Supervised(spec, wanted_at=now, state_since=now, shut_down=self._shut_down)
            self._instances[spec.id] = i
            self._stories[spec.id] = Story()
        elif spec.generation > i.spec.generation:
            i.new_generation(spec, now)
        return i

    def _remember(self, event: events.Remembered, now: float) -> Supervised:
        record = event.record
        i = remembered(record, event.alive, now)
        self._instances[i.id] = i
        self._stories[i.id] = Story()
        self._kept[i.id] = record
        had_process = record.spawning or record.identity is not None
        if had_process and not event.alive:
            i.left_at = now
            if not i.going and i.failure is None:
                _, message = of_exit(None, event.log_tail)
                text = f"while no agent watched, {message}"
                i.failure = Failure(
                    generation=i.spec.generation,
                    reason=of_exit(None, event.log_tail)[0],
                    message=text,
                    log_tail=event.log_tail,
                )
                i.failures += 1
        return i

    def _engine_event(self, i: Supervised, event: Event, now: float, out: list[Instruction]) -> None:
        step: Step | None = None
        match event:
            case events.ProcessStarted() if i.spawning:
                i.identity, i.spawning, i.seen_at = event.identity, False, now
            case events.StartRefused() if i.spawning:
                i.spawning, i.applied = False, None
                step = course.Fail(event.reason, event.message)
            case events.EngineAppeared() if i.identity and event.identity.pid == i.identity.pid:
                i.identity = event.identity
            case events.EngineStateSeen() if i.identity and event.asked_at >= i.answered_at:
                self._state_seen(i, event, now)
            case events.WrongEngineSeen() if i.identity and not i.stopping and i.failure is None:
                step = course.Fail(Reason.IDENTITY_MISMATCH, event.message)
            case events.EngineCallDone() if i.call and i.call.number == event.call:
                call, overran = i.call, drain_overran(i.call, i, now)
                call_done(i, call, event.state, event.serves, now)
                if overran:
                    i.remark = Note(Reason.DRAIN_TIMEOUT, overran)
            case events.EngineCallFailed() if i.call and i.call.number == event.call:
                step = call_failed(i, i.call, event, now)
            case events.ProcessExited() if i.identity:
                self._exited(i, event, now)
        if step is not None:
            out += self._apply(i, step, now)

    def _state_seen(self, i: Supervised, event: events.EngineStateSeen, now: float) -> None:
        first = i.phase in (None, EnginePhase.LOADING) and event.state.phase is EnginePhase.READY
        was_unseen = i.unseen
        i.saw(event.state, event.serves, now)
        if first:
            if not was_unseen:
                i.actuations_s["start"] = event.state.load_s or now - i.began_at
            judge_offload(i)

    def _exited(self, i: Supervised, event: events.ProcessExited, now: float) -> None:
        expected = i.going or i.restart or i.stopping or i.failure
        failure = i.failure
        reason, message = of_exit(event.code, event.log_tail)
        i.process_gone(now)
        if failure is not None:
            i.failure = failure.model_copy(update={"log_tail": event.log_tail})
        elif not expected:
            i.failures += 1
            i.failure = Failure(generation=i.spec.generation, reason=reason, message=message, log_tail=event.log_tail)

    # -- steps ------------------------------------------------------------------------------------------------------

    def _advance(self, i: Supervised, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for _ in range(STEPS_AT_ONCE):
            step = next_step(i, self._room(i.spec.device), now, self._patience)
            out += self._apply(i, step, now)
            if isinstance(step, course.Wait | course.Settle):
                break
        else:
            raise AssertionError(f"{i.id} takes step after step and gets nowhere: {i}")
        state = state_of(i)
        if state is not i.state:
            i.state, i.state_since = state, now
            if state is InstanceState.READY and i.first_ready_at is None:
                i.first_ready_at = now
        if i.state is InstanceState.READY and now - i.state_since >= FORGIVEN_AFTER_S:
            i.failures = 0
        return out

    def _apply(self, i: Supervised, step: Step, now: float) -> list[Instruction]:
        match step:
            case course.Wait():
                i.note = step.note or i.note
            case course.Settle():
                i.note, i.settled_generation = step.note, i.spec.generation
            case course.Start():
                i.spawning, i.began_at, i.seen_at, i.answered_at = True, now, now, now
                i.restart, i.failure, i.applied, i.leaked_bytes = "", None, i.wanted, 0
                return [instructions.StartProcess(i.spec)]
            case course.Ask():
                return [self._ask(i, step.kind, now)]
            case course.BeginStop():
                i.stopping, i.call = Stopping(now), None
            case course.SendTerm():
                assert i.stopping is not None
                i.stopping.terminated_at = now
                return [instructions.Terminate(i.id, i.identity)] if i.identity else []
            case course.SendKill():
                assert i.stopping is not None
                i.stopping.killed_at = now
                return [instructions.KillGroup(i.id, i.identity)] if i.identity else []
            case course.Fail():
                i.failure = Failure(generation=i.spec.generation, reason=step.reason, message=step.message)
                i.failures += 1
                i.call, i.restart = None, ""
            case course.Restart():
                return self._restart(i, step, now)
            case course.MemoryBack():
                i.left_at, i.left_bytes = None, 0
            case course.MemoryLeaked():
                self._leaks.add(i.spec.device, i.id, step.bytes, now - (i.left_at or now))
                i.leaked_bytes, i.left_at, i.left_bytes = step.bytes, None, 0
        return []

    def _ask(self, i: Supervised, kind: CallKind, now: float) -> Instruction:
        self._calls += 1
        if kind is CallKind.STOP:
            assert i.stopping is not None
            i.stopping.asked = True
        else:
            changes = kind in (CallKind.WAKE, CallKind.RESIDENCY)
            i.call = InFlight(self._calls, kind, now, i.phase, i.wanted if changes else None)
        body, deadline_s = request_for(kind, i.spec)
        return instructions.Call(i.id, self._calls, kind, body, deadline_s)

    def _restart(self, i: Supervised, step: course.Restart, now: float) -> list[Instruction]:
        """Once for each generation; a second time is a failure."""
        if i.restarted_generation == i.spec.generation:
            reason = i.refused.reason if i.refused else Reason.ESCALATED
            return self._apply(i, course.Fail(reason, f"even a new process did not help: {step.why}"), now)
        i.restart, i.restarted_generation, i.call = step.why, i.spec.generation, None
        return []

    # -- others -----------------------------------------------------------------------------------------------------

    def _guests_turn(self) -> list[Instruction]:
        out: list[Instruction] = []
        for guest in list(self._guests.values()):
            if guest.admitted:
                continue
            obstacle = self._room(guest.device).obstacle_to_start(guest.budget_bytes, guest.owner)
            if obstacle is None:
                guest.admitted = True
                out.append(instructions.AdmitGuest(guest.owner))
            elif obstacle.reason in course.GIVEN_UP_IN_TIME:
                del self._guests[guest.owner]
                out.append(instructions.RefuseGuest(guest.owner, obstacle.message))
        return out

    def _tell(self, i: Supervised, now: float) -> list[Instruction]:
        """The record and the status, where they have changed."""
        out: list[Instruction] = []
        record, status = i.record(), self.status(i.id, now)
        if record != self._kept.get(i.id):
            self._kept[i.id] = record
            out.append(instructions.Keep(record))
        told = self._told.get(i.id)
        if told is None or status != told.model_copy(update={"reported_at": now}):
            self._told[i.id] = status
            out.append(instructions.Report(status))
        return out

    def _write_story(
        self, i: Supervised, event: Event, named: Supervised | None, quiet: bool, done: list[Instruction], now: float
    ) -> None:
        reports = (instructions.Report, instructions.Keep)
        if (i is named and not quiet) or any(not isinstance(d, reports) for d in done):
            self._stories[i.id].add(now, event, done)

    def _in_order(self) -> list[Supervised]:
        """Who has waited longest has the first turn."""
        return sorted(self._instances.values(), key=lambda i: (i.wanted_at, i.id))

    def _room(self, device: str) -> Room:
        return Room.on(
            device,
            self._devices.get(device),
            self._devices_at,
            self._instances.values(),
            self._guests.values(),
            self._leaks.sentence(device),
        )
