from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from estiba_agent.devices import DeviceAccount, DeviceLedger
from estiba_agent.engines.torch.runtime import ModelRuntime

from .machine import DEVICE_BYTES, LINKLESS, a_launch

Load = Callable[..., ModelRuntime]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model-cache")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[DeviceAccount]:
    account = DeviceLedger(tmp_path / "ledger", DEVICE_BYTES).account("test", DEVICE_BYTES)
    yield account
    account.close()


@pytest.fixture
def load(cache: Path, account: DeviceAccount) -> Iterator[Load]:
    """Loads models into the test's one account, and closes them after it."""
    loaded: list[ModelRuntime] = []

    def load(uri: str, link: Any = None, **launch: Any) -> ModelRuntime:
        runtime = ModelRuntime.load(a_launch(uri, cache, **launch), account, link or LINKLESS)
        loaded.append(runtime)
        return runtime

    yield load
    for runtime in loaded:
        runtime.close()
