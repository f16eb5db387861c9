"""Goodput of one machine under three policies: the same models, the same device, the same requests, one after another.

    python bench/one_machine.py [--seconds 150] [--seed 1]

- `lru`: load on request, unload the least recently used one, keep for five minutes, never offload, never sleep.
- `fit`: as `lru`, and what does not fit is offloaded as far as it must be, whatever that costs.
- `estiba`: by measured profiles.

All three drive the very same engines, agent and gateway through `estiba up`; only the decisions differ. Goodput counts
the requests that were answered with TTFT and TPOT within their model's objectives, per second of the sequence. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from estiba import terminal
from estiba.chat_probe import Answer, chat
from estiba.exits import CommandError
from estiba.up_process import UpProcess
from estiba_operator.api import load_documents
from estiba_scheduler.domain import Objectives
from estiba_scheduler.quantities import format_seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.workload import Request, Share, is_good, quantile, sequence

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "three-models.yaml"
DEVICE = "cpu:memory=700MiB,link=2GiB/s"
POLICIES = ("lru", "fit", "estiba")
SHARES = {
    "assistant": Share(bursts_per_s=0.08, burst_size=2.0, median_tokens=24),
    "assistant-half": Share(bursts_per_s=0.06, burst_size=2.0, median_tokens=24),
    "batch": Share(bursts_per_s=0.03, burst_size=3.0, median_tokens=48),
}
HOLD_S = "60"
MEASURING_S = 300.0


@dataclass
class Outcome:
    """What one policy made of the sequence."""

    policy: str
    seconds: float
    answers: list[Answer] = field(default_factory=list)
    good: int = 0
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def goodput_per_s(self) -> float:
        return self.good / self.seconds


async def measured(state: Path, cache: Path, console: Console) -> None:
    """Profiles into `cache`, so that every policy starts with the same knowledge and none spends its time measuring."""
    up = UpProcess(state, arguments("estiba", cache))
    up.start()
    try:
        await up.answers()
        console.print("measuring the models, once for all policies")
        await up.until(lambda v: bool(v.models) and all(m.profile == "measured" for m in v.models), "", MEASURING_S)
        await up.end()
    finally:
        up.kill_all()


def arguments(policy: str, cache: Path) -> list[str]:
    where = ["--device", DEVICE, "-f", str(EXAMPLES), "--port", "0", "--profile-cache", str(cache)]
    return [*where, "--policy", policy, "--hold", HOLD_S]


async def play(policy: str, state: Path, cache: Path, requests: list[Request], seconds: float) -> Outcome:
    """From a start with nothing loaded until the last answer."""
    up = UpProcess(state, arguments(policy, cache))
    up.start()
    try:
        await up.answers()
        outcome = Outcome(policy, seconds)
        outcome.answers = await asyncio.gather(*send(up, requests))
        objectives = objectives_of_models()
        outcome.good = sum(is_good(answer, objectives[answer.model]) for answer in outcome.answers)
        outcome.actions = Counter(d.kind for d in await up.decisions() if d.kind != "Verdict")
        await up.end()
        return outcome
    finally:
        up.kill_all()


def send(up: UpProcess, requests: list[Request]) -> list[asyncio.Task[Answer]]:
    began = time.monotonic()

    async def one(request: Request) -> Answer:
        await asyncio.sleep(request.at_s - (time.monotonic() - began))
        return await chat(up.gateway, request.model, request.prompt, request.max_tokens)

    return [asyncio.create_task(one(request)) for request in requests]


def objectives_of_models() -> dict[str, Objectives]:
    return {d.metadata.name: d.to_deployment().objectives for d in load_documents(EXAMPLES)}


def table(outcomes: list[Outcome]) -> Table:
    shown = Table(title="one machine, the same requests")
    for column in ("policy", "requests", "good", "goodput/s", "failed", "TTFT p50", "TTFT p95", "TPOT p50", "actions"):
        shown.add_column(column)
    for outcome in outcomes:
        ok = [a for a in outcome.answers if a.ok]
        ttft = [a.ttft_s for a in ok if a.ttft_s is not None]
        tpot = [a.tpot_s for a in ok if a.tpot_s is not None]
        shown.add_row(
            outcome.policy,
            str(len(outcome.answers)),
            str(outcome.good),
            f"{outcome.goodput_per_s:.3f}",
            str(len(outcome.answers) - len(ok)),
            told(quantile(ttft, 0.5)),
            told(quantile(ttft, 0.95)),
            told(quantile(tpot, 0.5)),
            ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.actions.items())),
        )
    return shown


def by_model(outcomes: list[Outcome]) -> Table:
    objectives = objectives_of_models()
    shown = Table(title="good of all, and TTFT p95, by model")
    shown.add_column("policy")
    for model in objectives:
        shown.add_column(f"{model} (TTFT within {objectives[model].ttft_s:g} s)")
    for outcome in outcomes:
        row = []
        for model, wanted in objectives.items():
            mine = [a for a in outcome.answers if a.model == model]
            good = sum(is_good(a, wanted) for a in mine)
            ttft = [a.ttft_s for a in mine if a.ok and a.ttft_s is not None]
            row.append(f"{good} of {len(mine)}, {told(quantile(ttft, 0.95))}")
        shown.add_row(outcome.policy, *row)
    return shown


def told(seconds: float | None) -> str:
    return "–" if seconds is None else format_seconds(seconds)


def ratio(mine: Outcome, other: Outcome) -> float | None:
    """None where the other one has no good request at all."""
    return round(mine.good / other.good, 3) if other.good else None


async def run(seconds: float, seed: int, console: Console) -> list[Outcome]:
    requests = sequence(SHARES, seconds, seed)
    root = Path(tempfile.mkdtemp(prefix="estiba-bench-"))
    console.print(f"{len(requests)} requests in {seconds:g} s, seed {seed}, on {DEVICE}; {len(POLICIES)} policies")
    try:
        await measured(root / "m", root / "cache", console)
        outcomes = []
        for policy in POLICIES:
            outcomes.append(await play(policy, root / policy, root / "cache", requests, seconds))
            last = outcomes[-1]
            console.print(f"{policy}: {last.good} of {len(last.answers)} good, goodput {last.goodput_per_s:.3f}/s")
        return outcomes
    finally:
        shutil.rmtree(root, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150.0, help="length of the sequence")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    console = terminal.console()
    try:
        outcomes = asyncio.run(run(given.seconds, given.seed, console))
    except CommandError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; everything is stopped", file=sys.stderr)
        return 130
    console.print(table(outcomes), by_model(outcomes))
    lru, fit, estiba = outcomes
    print(
        json.dumps(
            {
                "name": "one_machine_goodput",
                "ratio_vs_lru": ratio(estiba, lru),
                "ratio_vs_fit": ratio(estiba, fit),
                "good": {o.policy: o.good for o in outcomes},
                "requests": len(estiba.answers),
                "seconds": given.seconds,
                "seed": given.seed,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
