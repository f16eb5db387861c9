"""A node without processes: a supervisor machine, a clock that tests turn, and ScriptedEngines that do as told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from estiba_agent.engines.wire import EnginePhase, EngineState
from estiba_agent.supervisor import events, instructions
from estiba_agent.supervisor.course import Patience
from estiba_agent.supervisor.events import CallKind, DeviceSeen, Trouble
from estiba_agent.supervisor.machine import Machine
from estiba_scheduler.domain import DesiredState, InstanceSpec, InstanceState, InstanceStatus, ProcessIdentity
from tests.builders import MIB, a_footprint, a_model

START = 1_000_000.0
TICK_S = 0.3
PATIENCE = Patience(unresponsive_s=30, silent_s=10, memory_back_s=20)


def a_spec(name: str = "a-1", **changes: Any) -> InstanceSpec:
    fields: dict[str, Any] = {
        "id": name,
        "deployment": f"default/{name}",
        "model": a_model(name),
        "served_name": name,
        "node": "n1",
        "device": "cpu-0",
        "resident_bytes": 500 * MIB,
        "kv_bytes": 16 * MIB,
        "budget_bytes": 520 * MIB,
        "drain_deadline_s": 60.0,
        "start_deadline_s": 100.0,
        "stop_grace_s": 5.0,
        "generation": 1,
    }
    return InstanceSpec(**fields | changes)


@dataclass
class ScriptedEngine:
    """An engine as its script has it. `silent`: its process runs and does not answer."""

    identity: ProcessIdentity
    resident_bytes: int
    kv_bytes: int
    phase: EnginePhase = EnginePhase.LOADING
    silent: bool = False
    serves: bool = True
    running: int = 0
    error: tuple[str, str] = ("", "")
    transitions: dict[str, float] = field(default_factory=dict)
    ignores_offload: bool = False

    def state(self) -> EngineState:
        foot = a_footprint()
        asleep = self.phase in (EnginePhase.ASLEEP1, EnginePhase.ASLEEP2)
        loaded = self.phase not in (EnginePhase.LOADING, EnginePhase.FAILED)
        resident = 0 if asleep else foot.weight_bytes if self.ignores_offload else self.resident_bytes
        return EngineState(
            phase=self.phase,
            url="http://127.0.0.1:4001",
            footprint=foot if loaded else None,
            resident_bytes=resident if loaded else 0,
            resident_fraction=resident / foot.weight_bytes if loaded else 0.0,
            device_bytes=resident + self.kv_bytes if loaded and not asleep else 0,
            host_bytes=foot.weight_bytes if self.phase is EnginePhase.ASLEEP1 else 0,
            kv_bytes=self.kv_bytes if loaded and not asleep else 0,
            running=self.running,
            load_s=4.0 if loaded else None,
            last_transition_s=self.transitions,
            error_reason=self.error[0],
            error=self.error[1],
        )


class ScriptedNode:
    """`obedient`: engines load at the next look and answer every call at once, as asked."""

    def __init__(self, obedient: bool = False, memory_mib: int = 700, holders_known: bool = True) -> None:
        self.machine = Machine(PATIENCE)
        self.now = START
        self.obedient = obedient
        self.engines: dict[str, ScriptedEngine] = {}
        self.calls: list[instructions.Call] = []
        self.pending: dict[str, instructions.Call] = {}
        self.done: list[instructions.Instruction] = []
        self.log: list[tuple[float, events.Event, list[instructions.Instruction]]] = []
        self.memory_bytes = memory_mib * MIB
        self.holders_known = holders_known
        self.leaked: dict[str, int] = {}
        self.foreign_bytes = 0
        self._pids = 100
        self.look()

    # -- telling the machine ----------------------------------------------------------------------------------------

    def feed(self, event: events.Event) -> list[instructions.Instruction]:
        out = self.machine.handle(event, self.now)
        self.log.append((self.now, event, out))
        self.done += out
        for instruction in out:
            self._carry_out(instruction)
        return out

    def want(self, spec: InstanceSpec) -> None:
        self.feed(events.SpecWanted(spec))

    def change(self, name: str = "a-1", **changes: Any) -> InstanceSpec:
        """The next generation of an instance's spec, with changes."""
        old = self.machine.spec(name)
        assert old is not None
        spec = old.model_copy(update={"generation": old.generation + 1, **changes})
        self.want(spec)
        return spec

    def desire(self, desired: DesiredState, name: str = "a-1") -> None:
        self.change(name, desired=desired)

    def look(self) -> None:
        """The devices are read."""
        held = {name: e.state().device_bytes for name, e in self.engines.items()} | self.leaked
        seen = DeviceSeen(
            uuid="cpu-0",
            memory_bytes=self.memory_bytes,
            usable_bytes=self.memory_bytes - self.foreign_bytes,
            free_bytes=max(0, self.memory_bytes - sum(held.values()) - self.foreign_bytes),
            foreign_bytes=self.foreign_bytes,
            holders=held if self.holders_known else None,
        )
        self.feed(events.DevicesSeen((seen,), asked_at=self.now))

    def poll(self, name: str = "a-1") -> None:
        engine = self.engines.get(name)
        if engine is not None and not engine.silent:
            self.feed(events.EngineStateSeen(name, engine.state(), self.now, engine.serves))

    def wait(self, seconds: float) -> None:
        """Let time pass, with everything that happens by itself."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TICK_S)
            for name in list(self.engines):
                self.poll(name)
            self.look()
            self.feed(events.Tick())
            if self.obedient:
                self._obey()

    def settle(self, name: str = "a-1", within_s: float = 60.0) -> None:
        """Let time pass until the newest wish is carried out."""
        end = self.now + within_s
        while self.status(name).settled_generation < self.status(name).observed_generation:
            assert self.now < end, self.story(name)
            self.wait(TICK_S)

    def loaded(self, name: str = "a-1") -> None:
        self.engines[name].phase = EnginePhase.READY
        self.poll(name)

    def answer(self, name: str = "a-1") -> instructions.Call:
        """The engine does what it was asked, and says so."""
        call = self.pending.pop(name)
        engine = self.engines[name]
        match call.kind:
            case CallKind.DRAIN:
                engine.phase, engine.running = EnginePhase.DRAINED, 0
            case CallKind.SLEEP1:
                engine.phase, engine.transitions = EnginePhase.ASLEEP1, {"sleep1": 0.2}
            case CallKind.SLEEP2:
                engine.phase, engine.transitions = EnginePhase.ASLEEP2, {"sleep2": 0.1}
            case CallKind.WAKE | CallKind.RESIDENCY:
                spec = self.machine.spec(name)
                assert spec is not None
                assert call.body is not None
                level = "wake2" if engine.phase is EnginePhase.ASLEEP2 else "wake1"
                engine.transitions = {level if call.kind is CallKind.WAKE else "resize": 0.4}
                engine.resident_bytes, engine.kv_bytes = spec.resident_bytes, spec.kv_bytes
                if call.kind is CallKind.WAKE:
                    engine.phase = EnginePhase.READY
            case CallKind.RESUME:
                engine.phase = EnginePhase.READY
            case CallKind.STOP:
                pass
        self.feed(events.EngineCallDone(name, call.number, engine.state(), engine.serves))
        return call

    def refuse(self, reason: str, message: str = "no", name: str = "a-1") -> None:
        call = self.pending.pop(name)
        self.feed(events.EngineCallFailed(name, call.number, Trouble.REFUSED, reason, message))

    def unreachable(self, name: str = "a-1") -> None:
        call = self.pending.pop(name)
        self.feed(events.EngineCallFailed(name, call.number, Trouble.UNREACHABLE, "", "no answer"))

    def exits(self, code: int | None = 0, tail: tuple[str, ...] = (), name: str = "a-1") -> None:
        del self.engines[name]
        self.pending.pop(name, None)
        self.feed(events.ProcessExited(name, code, tail))

    def ready(self, name: str = "a-1", **changes: Any) -> None:
        """Bring an instance up."""
        self.want(a_spec(name, **changes))
        self.loaded(name)
        assert self.status(name).state is InstanceState.READY, self.story(name)

    def put_to_sleep(self, level: int = 1, name: str = "a-1") -> None:
        self.desire(DesiredState.ASLEEP1 if level == 1 else DesiredState.ASLEEP2, name)
        self.answer(name)
        self.answer(name)
        self.look()

    # -- reading ----------------------------------------------------------------------------------------------------

    def status(self, name: str = "a-1") -> InstanceStatus:
        return self.machine.status(name, self.now)

    def asked(self, name: str = "a-1") -> list[str]:
        """Kinds of all calls so far."""
        return [call.kind.value for call in self.calls if call.instance == name]

    def starts(self, name: str = "a-1") -> int:
        return sum(isinstance(d, instructions.StartProcess) and d.spec.id == name for d in self.done)

    def ends(self, name: str = "a-1") -> int:
        return sum(isinstance(e, events.ProcessExited) and e.instance == name for _, e, _ in self.log)

    def sent(self, kind: type[instructions.Instruction]) -> list[instructions.Instruction]:
        return [d for d in self.done if isinstance(d, kind)]

    def reported(self, name: str = "a-1") -> list[str]:
        """States that were reported, without repetitions in a row."""
        states: list[str] = []
        for each in self.done:
            if isinstance(each, instructions.Report) and each.status.id == name:
                state = each.status.state.value
                if not states or states[-1] != state:
                    states.append(state)
        return states

    def story(self, name: str = "a-1") -> str:
        return "\n".join(self.machine.story(name).lines())

    # -- inner ------------------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartProcess():
                self._pids += 1
                name = instruction.spec.id
                identity = ProcessIdentity(pid=self._pids, started_at=self.now)
                self.engines[name] = ScriptedEngine(
                    identity, instruction.spec.resident_bytes, instruction.spec.kv_bytes
                )
                self.feed(events.ProcessStarted(name, identity))
            case instructions.Call():
                self.calls.append(instruction)
                self.pending[instruction.instance] = instruction

    def _obey(self) -> None:
        for name, engine in list(self.engines.items()):
            if engine.phase is EnginePhase.LOADING:
                self.loaded(name)
            elif name in self.pending and self.pending[name].kind is CallKind.STOP:
                self.exits(0, name=name)
            elif name in self.pending:
                self.answer(name)
