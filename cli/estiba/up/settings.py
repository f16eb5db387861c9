"""What one `estiba up` is told."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path

from ..state_dir import cache_dir


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Times are seconds, sizes bytes. Paths of everything that lies in the state directory are here."""

    devices: tuple[str, ...]
    state_dir: Path
    redis_url: str | None = None
    port: int = 8080
    host_memory_bytes: int | None = None
    policy: str = "estiba"
    hold_s: float = 60.0
    measure_first: bool = True
    node: str = field(default_factory=lambda: platform.node() or "localhost")
    model_cache: Path = field(default_factory=lambda: cache_dir() / "models")
    profile_cache: Path = field(default_factory=lambda: cache_dir() / "profiles")

    @property
    def control_socket(self) -> Path:
        return self.state_dir / "up.sock"

    @property
    def lock_file(self) -> Path:
        """Held by the one `estiba up` of this state directory."""
        return self.state_dir / "up.lock"

    @property
    def processes_file(self) -> Path:
        """Which processes were started, for the next `up` after one that was killed."""
        return self.state_dir / "up.json"

    @property
    def deployments_file(self) -> Path:
        return self.state_dir / "deployments.json"

    @property
    def gateway_port_file(self) -> Path:
        return self.state_dir / "gateway.port"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"
