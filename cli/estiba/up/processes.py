"""Redis, agent and gateway of one machine: started in order, kept running, ended in order."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from estiba_agent.config import AgentConfig
from estiba_agent.supervisor.process import write_atomically
from estiba_gateway.config import GatewayConfig
from estiba_scheduler.store import LocalRedis, RedisDidNotStart

from ..exits import CommandError, UsageError
from .children import Child, end_left_over, remember
from .settings import UpSettings

log = logging.getLogger(__name__)

KEEP_S = 0.25
AGENT_START_S = 60.0
GATEWAY_START_S = 30.0
ENGINES_END_S = 60.0
"""Draining and stopping all engines may take so long."""
POLL_S = 0.05


class Processes:
    def __init__(self, settings: UpSettings) -> None:
        self._settings = settings
        self._redis = LocalRedis(settings.state_dir / "redis") if settings.redis_url is None else None
        self._redis_retry_at = 0.0
        python = [sys.executable, "-m"]
        self.agent = Child("agent", [*python, "estiba_agent", str(self._agent_file)], settings.logs_dir / "agent.log")
        self.gateway = Child(
            "gateway", [*python, "estiba_gateway", str(self._gateway_file)], settings.logs_dir / "gateway.log"
        )
        self.redis_url = settings.redis_url or ""
        self.agent_config = self._make_agent_config("redis://unknown")

    async def start(self) -> None:
        """Redis, then agent and gateway, beside each other. Raises CommandError saying which did not start, and why."""
        settings = self._settings
        await end_left_over(settings.processes_file)
        if self._redis is not None:
            try:
                self.redis_url = await self._redis.start()
            except RedisDidNotStart as error:
                raise CommandError(str(error)) from error
        self.agent_config = self._make_agent_config(self.redis_url)
        write_atomically(self._agent_file, self.agent_config.model_dump_json(indent=1))
        gateway = GatewayConfig(
            redis_url=self.redis_url,
            port=settings.port,
            hold_s=settings.hold_s,
            state_dir=settings.state_dir,
            source=f"gateway-{settings.node}",
        )
        write_atomically(self._gateway_file, gateway.model_dump_json(indent=1))
        settings.gateway_port_file.unlink(missing_ok=True)
        self.agent.start()
        self.gateway.start()
        self.remember()

    async def wait_for(self, child: Child, ready: Callable[[], Awaitable[bool]], deadline_s: float) -> None:
        """Until it answers. Raises CommandError with its last words when it ends, or does not in time."""
        end = time.monotonic() + deadline_s
        while not await ready():
            if not child.running:
                kind = UsageError if child.exit_code == 2 else CommandError
                raise kind(f"the {child.name} did not start (code {child.exit_code}): {child.last_line()}")
            if time.monotonic() > end:
                raise CommandError(f"the {child.name} does not answer after {deadline_s:g} s: {child.last_line()}")
            await asyncio.sleep(POLL_S)

    async def gateway_listens(self) -> bool:
        return self.gateway_url is not None

    @property
    def gateway_url(self) -> str | None:
        try:
            return f"http://127.0.0.1:{int(self._settings.gateway_port_file.read_text())}"
        except (OSError, ValueError):
            return None

    async def keep(self) -> None:
        """Start again whatever died, until cancelled."""
        while True:
            started = [child.keep() for child in (self.agent, self.gateway)]
            if self._redis is not None and not self._redis.running and time.monotonic() >= self._redis_retry_at:
                log.warning("redis-server is gone, it is started again; everything in it is told again")
                try:
                    await self._redis.start()
                    started.append(True)
                except RedisDidNotStart as error:
                    log.error("%s", error)
                    self._redis_retry_at = time.monotonic() + 2.0
            if any(started):
                self.remember()
            await asyncio.sleep(KEEP_S)

    def remember(self) -> None:
        remember(self._settings.processes_file, [self.agent, self.gateway])

    def pids(self) -> dict[str, int | None]:
        return {
            "agent": self.agent.pid,
            "gateway": self.gateway.pid,
            "redis": self._redis.pid if self._redis is not None else None,
        }

    async def end(self, shut_down_agent: Callable[[], Awaitable[Any]]) -> None:
        """First nobody asks any more, then the engines drain and stop, then what they reported to goes."""
        await self.gateway.end()
        if self.agent.running:
            try:
                await shut_down_agent()
                if not await self.agent.gone_within(ENGINES_END_S):
                    log.warning("the agent does not end; its engines may be left")
            except Exception as error:
                log.warning("the agent can't be asked to stop its engines: %s", error)
                raise
            finally:
                await self.agent.end()
        if self._redis is not None:
            await self._redis.stop()
        self._settings.processes_file.unlink(missing_ok=True)

    # -- inner ------------------------------------------------------------------------------------------------------

    @property
    def _agent_file(self) -> Path:
        return self._settings.state_dir / "agent.json"

    @property
    def _gateway_file(self) -> Path:
        return self._settings.state_dir / "gateway.json"

    def _make_agent_config(self, redis_url: str) -> AgentConfig:
        settings = self._settings
        try:
            return AgentConfig(
                node=settings.node,
                state_dir=settings.state_dir,
                redis_url=redis_url,
                devices=list(settings.devices),
                host_memory_bytes=settings.host_memory_bytes,
                model_cache=settings.model_cache,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
