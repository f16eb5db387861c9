"""`estiba up`: one machine, no Kubernetes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from estiba_agent.devices import parse_device
from estiba_scheduler.policies import POLICIES
from estiba_scheduler.quantities import parse_bytes

from ..exits import UsageError
from ..state_dir import cache_dir
from ..up.settings import UpSettings
from .deployments import read_deployments
from .options import Files, State


def up(
    state: State,
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--device", help="cpu, cpu:memory=700MiB,link=1GiB/s,threads=1,reserve=0 or nvml. May be repeated."
        ),
    ] = None,
    files: Files = None,
    redis_url: Annotated[
        str | None, typer.Option("--redis-url", help="A running Redis; without it, one of our own is started.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of the OpenAI API; 0: a free one.")] = 8080,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", help="Budget for sleeping and offloaded weights, for example 8GiB.")
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="estiba, or to compare: lru, fit.")] = "estiba",
    hold: Annotated[
        float, typer.Option("--hold", min=1, max=3600, help="Seconds a request may wait for its model.")
    ] = 60.0,
    profile_cache: Annotated[
        Path | None, typer.Option("--profile-cache", help="Where profiles of this machine are kept between runs.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--profile/--no-profile", help="Measure models that no profile is known of, before serving.")
    ] = True,
) -> None:
    """Serve models on this machine: places, offloads and preempts them by what was measured. Ctrl-C ends it."""
    requests = tuple(devices or ["cpu"])
    try:
        for request in requests:
            parse_device(request)
        host_memory_bytes = parse_bytes(host_memory) if host_memory else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    if policy not in POLICIES:
        raise UsageError(f"no policy is called {policy!r}; there are {', '.join(POLICIES)}")
    documents = read_deployments(files) if files else []
    settings = UpSettings(
        devices=requests,
        state_dir=Path(state).expanduser().absolute(),
        redis_url=redis_url,
        port=port,
        host_memory_bytes=host_memory_bytes,
        policy=policy,
        hold_s=hold,
        measure_first=measure,
        profile_cache=(profile_cache or cache_dir() / "profiles").expanduser().absolute(),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    for noisy in ("httpx", "httpcore", "uvicorn", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    from ..up.machine import run_up

    asyncio.run(run_up(settings, documents))
