"""What a gateway may be set up as, and that the page about it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from estiba_gateway.config import GatewayConfig
from estiba_gateway.outcome import OF_CODE, Outcome
from estiba_gateway.refusal import Code
from estiba_gateway.route_table import MetState

PAGE = Path(__file__).parents[3] / "docs/reference/gateway.md"
REQUIRED = {"redis_url": "unix:///r.sock", "state_dir": "/s"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_it_listens_on_loopback(host: str) -> None:
    assert GatewayConfig(**REQUIRED, host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.org"])
def test_it_listens_nowhere_else(host: str) -> None:
    with pytest.raises(ValidationError, match=r"loopback only; write 127\.0\.0\.1"):
        GatewayConfig(**REQUIRED, host=host)


def test_unknown_fields_are_an_error() -> None:
    with pytest.raises(ValidationError, match="hold_seconds"):
        GatewayConfig(**REQUIRED, hold_seconds=3)


def test_every_code_has_an_outcome() -> None:
    assert set(OF_CODE) == set(Code)


def test_every_code_state_outcome_and_setting_is_documented() -> None:
    page = PAGE.read_text()
    words = [*Code, *MetState, *Outcome, *GatewayConfig.model_fields]
    assert [word for word in words if f"`{word}`" not in page] == []
