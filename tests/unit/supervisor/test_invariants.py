"""Whatever happens, in whatever order: one process of an instance at most, and every wish is reached or failed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from estiba_agent.engines.wire import EnginePhase
from estiba_agent.supervisor import instructions
from estiba_scheduler.domain import DesiredState, InstanceState
from tests.builders import MIB

from .scripted_node import ScriptedNode, a_spec

NAMES = ("a-1", "b-1")
END = {
    DesiredState.RUNNING: InstanceState.READY,
    DesiredState.ASLEEP1: InstanceState.ASLEEP1,
    DesiredState.ASLEEP2: InstanceState.ASLEEP2,
    DesiredState.EVICTED: InstanceState.EVICTED,
}
Happening = Callable[[ScriptedNode, str], None]


def wishes(desired: DesiredState) -> Happening:
    return lambda node, name: node.desire(desired, name)


def resizes(node: ScriptedNode, name: str) -> None:
    node.change(name, resident_bytes=150 * MIB, budget_bytes=180 * MIB)


def loads(node: ScriptedNode, name: str) -> None:
    if name in node.engines and node.engines[name].phase is EnginePhase.LOADING:
        node.loaded(name)


def answers(node: ScriptedNode, name: str) -> None:
    if name in node.pending:
        node.answer(name)


def refuses(reason: str) -> Happening:
    return lambda node, name: node.refuse(reason, name=name) if name in node.pending else None


def dies(node: ScriptedNode, name: str) -> None:
    if name in node.engines:
        node.exits(-9, ("a last line",), name)


def falls_silent(node: ScriptedNode, name: str) -> None:
    if name in node.engines:
        node.engines[name].silent = not node.engines[name].silent


def time_passes(seconds: float) -> Happening:
    return lambda node, name: node.wait(seconds)


HAPPENINGS: list[Happening] = [
    *(wishes(desired) for desired in DesiredState),
    resizes,
    loads,
    answers,
    answers,
    refuses("InsufficientDeviceMemory"),
    refuses("WrongPhase"),
    refuses("KvCacheInUse"),
    refuses("CanaryMismatch"),
    dies,
    falls_silent,
    time_passes(1),
    time_passes(40),
]


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.sampled_from(NAMES)), max_size=25))
def test_there_is_one_process_at_most_and_every_wish_comes_to_an_end(happenings: list[tuple[Happening, str]]) -> None:
    node = ScriptedNode()
    for name in NAMES:
        node.want(a_spec(name, resident_bytes=200 * MIB, budget_bytes=230 * MIB))
    for happening, name in happenings:
        happening(node, name)
        for each in NAMES:
            started = node.starts(each)
            ended = node.ends(each)
            assert started - ended in (0, 1), node.story(each)
            assert (started - ended == 1) == (each in node.engines), node.story(each)
            loading = [n for n, e in node.engines.items() if e.phase is EnginePhase.LOADING]
            assert len(loading) <= 1, "starts take turns"
    node.obedient = True
    for name in NAMES:
        if name in node.engines:
            node.engines[name].silent = False
    for name in NAMES:
        for _ in range(1000):
            if node.status(name).settled_generation >= node.status(name).observed_generation:
                break
            node.wait(0.3)
            end_what_was_killed(node)
        spec, status = node.machine.spec(name), node.status(name)
        assert spec is not None
        assert status.state in (END[spec.desired], InstanceState.FAILED), node.story(name)
        assert status.settled_generation == status.observed_generation, node.story(name)


def end_what_was_killed(node: ScriptedNode) -> None:
    """Processes end when they are killed."""
    killed = {done.identity for done in node.done if isinstance(done, instructions.KillGroup)}
    for name, engine in list(node.engines.items()):
        if engine.identity in killed:
            node.exits(-9, name=name)
