"""From a launch description to a loaded model, and from what may go wrong to a reason that the supervisor knows.

Runs in the engine's thread; importing this module imports torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from estiba_agent.devices import DeviceAccount, DeviceLedger, DeviceOutOfMemory, HostLinkClock
from estiba_agent.models import BadModel
from estiba_scheduler.domain import Reason

from ..wire import EngineLaunch
from .device_memory import DeviceMemory
from .kv import KvCacheFull
from .refusal import Refusal, RefusalReason
from .runtime import ModelRuntime
from .seam import EngineRuntime

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A runtime with its memory. `close` gives everything back to the device."""

    runtime: EngineRuntime
    memory: DeviceMemory
    close: Callable[[], None]


def load(launch: EngineLaunch) -> LoadedModel:
    """Load the weights that `launch` names into its device account. On failure nothing stays on the device."""
    torch.set_num_threads(launch.compute_threads)
    torch.set_grad_enabled(False)
    account, ledger = _open_account(launch)
    try:
        link = HostLinkClock(launch.link_file, launch.link_bytes_per_s)
        runtime = ModelRuntime.load(launch, account, link)
    except BaseException:
        account.close()
        raise

    def close() -> None:
        runtime.close()
        account.close()

    return LoadedModel(runtime, DeviceMemory.on(ledger, account), close)


def failure_of(error: BaseException) -> tuple[str, str]:
    """Reason and sentence for whatever a load died of."""
    if isinstance(error, DeviceOutOfMemory | MemoryError | torch.OutOfMemoryError):
        return Reason.OUT_OF_MEMORY.value, str(error) or "host memory ran out while the model was loaded"
    if isinstance(error, BadModel):
        return Reason.BAD_MODEL.value, str(error)
    if isinstance(error, KvCacheFull):
        return RefusalReason.KV_FULL.value, f"the KV budget has no room for the first short generation: {error}"
    if isinstance(error, Refusal):
        return error.reason.value, error.message
    return RefusalReason.INTERNAL.value, f"{type(error).__name__}: {error}"


def _open_account(launch: EngineLaunch) -> tuple[DeviceAccount, DeviceLedger]:
    if launch.ledger_dir is None:
        raise Refusal(
            RefusalReason.INVALID,
            f"the launch file of {launch.instance} has no ledger_dir: the torch engine accounts its memory on "
            f"{launch.device} in a ledger that all engines of the device share",
        )
    ledger = DeviceLedger(launch.ledger_dir, launch.device_memory_bytes)
    return ledger.account(launch.instance, launch.budget_bytes), ledger
