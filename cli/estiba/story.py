"""The story that the demo plays: seven steps, each with its checks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from estiba_agent.devices import DeviceLedger
from estiba_scheduler.domain import ActionKind, InstanceState, ModelProfile, Reason, Rung
from estiba_scheduler.prediction import DecodeCurve, idle_s
from estiba_scheduler.quantities import format_bytes, format_seconds
from estiba_scheduler.store import Decision

from .chat_probe import Answer, chat
from .exits import CommandError
from .status_report import decision_table, status_tables
from .story_table import request_table
from .terminal import console
from .up.status_view import ModelStanding, StatusView
from .up_process import UpProcess

ASSISTANT, HALF, BATCH = "assistant", "assistant-half", "batch"
MODELS = (ASSISTANT, HALF, BATCH)
CAPITAL = "What is the capital of France?"
ESSAY = "Tell me a long story about a ship and its cargo."
PROFILING_S = 60.0
IDLE_TOLERANCE_S = 5.0
"""A loop that looks once a second, and a drain, come on top of the idle time."""


class Story:
    def __init__(self, up: UpProcess, examples: Path, device: str) -> None:
        self._up = up
        self._examples = examples
        self._device = device
        self._console = console()
        self._answers: list[tuple[str, Answer]] = []

    async def tell(self) -> None:
        """Raises CommandError at the first thing that is not as said."""
        self._up.start()
        await self._up.answers()
        await self._larger_than_the_device()
        await self._measured()
        await self._all_answer()
        await self._a_burst_preempts()
        await self._idle_models_sleep()
        await self._tables()
        await self._nothing_is_left()

    # -- the steps --------------------------------------------------------------------------------------------------

    async def _larger_than_the_device(self) -> None:
        self._title(1, f"three models on one device ({self._device})")
        view = await self._up.until(lambda v: {m.name for m in v.models} == set(MODELS) and bool(v.devices), "known")
        for model in view.models:
            self._say(f"{model.name}: {model.uri} in {model.dtype}, priority {model.priority}")

    async def _measured(self) -> None:
        self._title(2, "each is measured: how it slows as weights leave the device, and what coming back takes")
        view = await self._watch_measuring()
        profiles = self._profiles(view)
        for name, profile in profiles.items():
            curve = DecodeCurve(profile)
            full = curve.predict(profile.footprint.weight_bytes).tpot_s
            half = curve.predict(profile.footprint.weight_bytes // 2).tpot_s
            ladder = ", ".join(f"{r.rung} {format_seconds(r.seconds_s)}" for r in profile.reload)
            self._say(
                f"{name}: {format_bytes(profile.footprint.weight_bytes)}, {format_seconds(full)} a token, "
                f"{half / full:.2f} times that with half of it offloaded; comes back from {ladder}"
            )
        spent = sum(p.profiling_s for p in profiles.values())
        self._check(spent < PROFILING_S, f"measuring took {spent:.0f} s in all, less than {PROFILING_S:.0f} s")
        weights = sum(p.footprint.weight_bytes for p in profiles.values())
        memory = view.devices[0].usable_bytes
        self._check(
            weights > memory, f"their {format_bytes(weights)} of weights exceed the device's {format_bytes(memory)}"
        )

    async def _all_answer(self) -> None:
        self._title(3, "all answer; the least sensitive one runs partly offloaded")
        paris = await self._ask(ASSISTANT, CAPITAL, "alone")
        self._check("Paris" in paris.text, f"assistant: {paris.text.strip()!r}")
        # While assistant is in use, assistant-half has to make do with the room that is left.
        busy = asyncio.create_task(self._ask(ASSISTANT, ESSAY, "long", max_tokens=220))
        await self._up.until(lambda v: self._one(v, ASSISTANT).in_flight > 0, "assistant runs a request")
        beside = asyncio.create_task(self._ask(HALF, CAPITAL, "beside assistant"))
        view = await self._up.until(
            lambda v: all(self._one(v, name).state == InstanceState.READY for name in (ASSISTANT, HALF)),
            "assistant and assistant-half are both awake",
        )
        share = self._one(view, HALF).resident_fraction or 0.0
        slowdowns = {name: self._slowdown_at_half(profile) for name, profile in self._profiles(view).items()}
        self._check(0.0 < share < 1.0, f"assistant-half serves with {share:.0%} of its weights on the device")
        self._check(
            min(slowdowns, key=lambda name: slowdowns[name]) == HALF,
            "it is the least sensitive: "
            + ", ".join(f"{name} slows {factor:.2f} times at half" for name, factor in sorted(slowdowns.items())),
        )
        await asyncio.gather(busy, beside)
        await self._ask(BATCH, CAPITAL, "alone")
        self._check(all(a.ok for _, a in self._answers), f"{len(self._answers)} of {len(self._answers)} chats answered")

    async def _a_burst_preempts(self) -> None:
        self._title(4, "a burst on an absent model preempts the victim that costs least")
        # Two models hold the device, both in use; the third one is put away.
        keep = asyncio.create_task(self._ask(HALF, ESSAY, "running when preempted?", max_tokens=200))
        running = asyncio.create_task(self._ask(BATCH, ESSAY, "running when preempted?", max_tokens=120))
        view = await self._up.until(
            lambda v: all(self._one(v, n).in_flight > 0 and self._one(v, n).state == "Ready" for n in (HALF, BATCH)),
            "assistant-half and batch both run a request",
        )
        at = view.at
        self._check(
            self._one(view, ASSISTANT).state in ("Asleep1", "Asleep2", "Absent"),
            f"assistant is {self._one(view, ASSISTANT).state}",
        )
        burst = [asyncio.create_task(self._ask(ASSISTANT, CAPITAL, "burst")) for _ in range(4)]
        decision = await self._decision(at, (ActionKind.SLEEP, ActionKind.EVICT), Reason.PREEMPTED)
        victim = decision.deployment.removeprefix("default/")
        self._say(f"{decision.kind} {victim}: {decision.message}")
        cost, instead = decision.numbers.get("cost"), decision.numbers.get("instead_cost")
        self._check(
            cost is not None and (instead is None or cost <= instead),
            f"{victim} was chosen by cost: {cost:.3g}" + ("" if instead is None else f", the next best {instead:.3g}"),
        )
        await self._up.until(lambda v: self._one(v, victim).state != "Ready", f"{victim} yields")
        sleeper = asyncio.create_task(self._ask(victim, CAPITAL, "for the sleeper"))
        ran, kept, held, *others = await asyncio.gather(running, keep, sleeper, *burst)
        self._check(ran.ok and kept.ok, "what the victim was running has finished")
        self._check(all(a.ok for a in others), "the burst is answered")
        self._check(
            held.ok and held.held_s > 0,
            f"the request for the sleeper met it {held.met_state}, was held {format_seconds(held.held_s)} and answered",
        )

    async def _idle_models_sleep(self) -> None:
        self._title(5, "idle models go to sleep, after a time derived from what coming back costs")
        view = await self._up.until(
            lambda v: all(m.state not in ("Ready", "Draining", "Starting", "Pending") for m in v.models),
            "all models are asleep",
            120,
        )
        profiles = self._profiles(view)
        for name in MODELS:
            idle = [d for d in await self._up.decisions(name) if d.kind == "Sleep" and d.reason is Reason.IDLE]
            self._check(bool(idle), f"{name} was put away for being idle")
            numbers = idle[-1].numbers
            derived = idle_s(profiles[name], Rung.SLEEP1)
            self._check(
                abs(numbers["idle_after_s"] - derived) < 0.01
                and derived <= numbers["idle_s"] < derived + IDLE_TOLERANCE_S,
                f"{name}: idle for {numbers['idle_s']:.1f} s; its idle time is {derived:.1f} s, "
                f"because it comes back in {format_seconds(numbers['wake_s'])}",
            )

    async def _tables(self) -> None:
        self._title(6, "what happened")
        self._console.print(request_table(self._answers))
        decisions = [d for d in await self._up.decisions() if d.kind != "Verdict"]
        self._console.print(decision_table(decisions))
        view = await self._up.status()
        if view is not None:
            self._console.print(status_tables(view))
        failed = [a for _, a in self._answers if not a.ok]
        self._check(not failed, f"none of {len(self._answers)} requests was lost")

    async def _nothing_is_left(self) -> None:
        self._title(7, "everything is stopped")
        view = await self._up.status()
        assert view is not None
        ledgers = [self._up.state_dir / "ledger" / d.uuid for d in view.devices]
        code = await self._up.end()
        self._check(code == 0, "estiba up ended as asked")
        left = self._up.left_over()
        self._check(not left, f"no process is left{''.join(f' {p.pid}' for p in left)}")
        held = sum(DeviceLedger(ledger, 1).used_bytes() for ledger in ledgers)
        self._check(held == 0, f"no device memory is left: {held} bytes are held")

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _watch_measuring(self) -> StatusView:
        said = ""
        while True:
            view = await self._up.until(lambda _: True, "estiba up answers")
            for job in view.jobs:
                line = f"{job.deployment.removeprefix('default/')}: {job.done} of {job.total}, {job.note}"
                if line != said and job.state == "running":
                    self._say(line)
                    said = line
                if job.state == "failed":
                    raise CommandError(f"measuring {job.deployment} failed: {job.error}")
            if len(view.models) == len(MODELS) and all(m.profile == "measured" for m in view.models):
                return view
            await asyncio.sleep(0.2)

    async def _ask(self, model: str, prompt: str, why: str, max_tokens: int = 24) -> Answer:
        answer = await chat(self._up.gateway, model, prompt, max_tokens)
        self._answers.append((why, answer))
        if not answer.ok:
            raise CommandError(f"{model} did not answer ({why}): status {answer.status}, {answer.error}")
        return answer

    async def _decision(self, since: float, kinds: Iterable[ActionKind], reason: Reason) -> Decision:
        wanted = {kind.value for kind in kinds}
        for _ in range(600):
            for decision in await self._up.decisions():
                if decision.at >= since and decision.kind in wanted and decision.reason is reason:
                    return decision
            await asyncio.sleep(0.2)
        raise CommandError(f"nobody was put away with reason {reason}")

    def _profiles(self, view: StatusView) -> dict[str, ModelProfile]:
        found = {}
        for model in view.models:
            mine = (model.digest, model.dtype)
            profile = next((p for p in view.profiles if (p.key.model_digest, p.key.dtype) == mine), None)
            if profile is None:
                raise CommandError(f"no profile of {model.name} is in the status")
            found[model.name] = profile
        return found

    def _one(self, view: StatusView, name: str) -> ModelStanding:
        return next(m for m in view.models if m.name == name)

    def _slowdown_at_half(self, profile: ModelProfile) -> float:
        curve = DecodeCurve(profile)
        weights = profile.footprint.weight_bytes
        return curve.predict(weights // 2).tpot_s / curve.predict(weights).tpot_s

    def _title(self, number: int, words: str) -> None:
        self._console.print(f"\n({number}) {words}", style="bold", markup=False)

    def _say(self, words: str) -> None:
        self._console.print(f"    {words}", markup=False, highlight=False)

    def _check(self, holds: bool, words: str) -> None:
        if not holds:
            raise CommandError(words)
        self._console.print(f"    ok: {words}", style="green", markup=False, highlight=False)
