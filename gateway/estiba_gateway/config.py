"""How one gateway is set up: a JSON file, whose path is the gateway's one argument; and where it keeps things."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

MIB = 1024 * 1024


class GatewayConfig(BaseModel):
    """Times are seconds, sizes bytes. Unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    redis_url: str = Field(description="unix:///path or redis://host:port/0")
    state_dir: Path
    source: str = Field(default="gateway", min_length=1, max_length=100, description="who reports the demand")
    host: str = Field(default="127.0.0.1", description="loopback only")
    port: int = Field(default=8080, ge=0, le=65535, description="0: a free one; the one in use is in gateway.port")
    hold_s: float = Field(default=60.0, gt=0, le=3600, description="longest that a request is held, all in all")
    max_held: int = Field(default=256, ge=0, le=100_000, description="requests held per model")
    max_held_bytes: int = Field(default=256 * MIB, ge=0, description="bodies of all held requests together")
    max_requests: int = Field(default=1024, ge=1, le=100_000, description="requests open at once, of all models")
    max_body_bytes: int = Field(default=4 * MIB, ge=1024)
    poll_s: float = Field(default=0.2, gt=0, le=10, description="how often the store is read")
    demand_every_s: float = Field(default=1.0, gt=0, le=60, description="how often demand is reported")
    demand_ttl_s: float = Field(default=5.0, gt=0, description="the store forgets what was reported after that")
    engine_silence_s: float = Field(default=600.0, gt=0, description="an engine that sends nothing for so long is left")
    client_stall_s: float = Field(default=60.0, gt=0, description="a client that takes nothing for so long is left")
    finish_s: float = Field(default=30.0, ge=0, description="running requests may go on so long after SIGTERM")

    @field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(f"the gateway listens on loopback only; write 127.0.0.1 instead of {host!r}")
        return host

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @property
    def port_file(self) -> Path:
        """Holds the port in use while the gateway listens."""
        return self.state_dir / "gateway.port"

    @property
    def lock_file(self) -> Path:
        """Held by the one gateway of this state directory."""
        return self.state_dir / "gateway.lock"
