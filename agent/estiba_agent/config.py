"""How one agent is set up: a JSON file, whose path is the agent's one argument; and where it keeps things."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

SOCKET_PATH_LIMIT = 103
"""Longest path of a unix socket, in bytes (Linux takes 107, macOS 103)."""

USUAL_INSTANCE_ID = 24


class AgentConfig(BaseModel):
    """Times are seconds, sizes bytes. Unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str = Field(min_length=1, max_length=253, description="name of this machine in the store")
    state_dir: Path = Field(description="a short path: unix sockets lie below it")
    redis_url: str = Field(description="unix:///path or redis://host:port/0")
    devices: list[str] = Field(default_factory=lambda: ["cpu"], min_length=1, max_length=64)
    host_memory_bytes: int | None = Field(
        default=None, ge=0, description="for sleeping and offloaded weights; None: a share of what the machine has"
    )
    api_host: str = Field(default="127.0.0.1", description="loopback only")
    api_port: int = Field(default=0, ge=0, le=65535, description="0: a free one; the one in use is in agent.port")
    heartbeat_s: float = Field(default=1.0, gt=0, le=60)
    heartbeat_ttl_s: float = Field(default=15.0, gt=0, description="the store forgets the node after that")
    poll_s: float = Field(default=0.3, gt=0, le=10, description="engines are asked for their state that often")
    unresponsive_s: float = Field(default=30.0, gt=0, description="an engine silent for so long is killed")
    memory_back_s: float = Field(default=20.0, gt=0, description="device memory must be back so long after a stop")
    model_cache: Path = Field(default_factory=lambda: Path.home() / ".cache" / "estiba" / "models")
    stop_engines_on_exit: bool = Field(default=False, description="False: engines outlive the agent")

    @field_validator("api_host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(f"the metrics API listens on loopback only; write 127.0.0.1 instead of {host!r}")
        return host

    @field_validator("state_dir", "model_cache")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @field_validator("state_dir")
    @classmethod
    def _short(cls, path: Path) -> Path:
        room = SOCKET_PATH_LIMIT - len(os.fsencode(Path("/e") / ("x" * USUAL_INSTANCE_ID) / "c.sock"))
        if len(os.fsencode(path)) > room:
            raise ValueError(
                f"{path} is too long for a state directory: a unix socket's path may have {SOCKET_PATH_LIMIT} bytes, "
                f"which leaves {room} for it; use a shorter one, such as /tmp/estiba"
            )
        return path

    # -- where things are -------------------------------------------------------------------------------------------

    @property
    def command_socket(self) -> Path:
        return self.state_dir / "agent.sock"

    @property
    def port_file(self) -> Path:
        return self.state_dir / "agent.port"

    @property
    def lock_file(self) -> Path:
        """Held by the one agent of this state directory."""
        return self.state_dir / "agent.lock"

    @property
    def instances_dir(self) -> Path:
        return self.state_dir / "e"

    @property
    def profiles_dir(self) -> Path:
        """The agent's own copy of every profile it measured, for a store that lost its data."""
        return self.state_dir / "profiles"

    @property
    def jobs_dir(self) -> Path:
        return self.state_dir / "jobs"

    def instance_dir(self, instance: str) -> Path:
        return self.instances_dir / instance

    def job_dir(self, profile_key: str) -> Path:
        """Where measuring under this key keeps what it has, so that it can be resumed."""
        return self.jobs_dir / hashlib.sha256(profile_key.encode()).hexdigest()[:16]
