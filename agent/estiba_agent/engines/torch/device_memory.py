"""The engine's share of device memory: its budget, what it holds, and whether there is room for more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from estiba_agent.devices import DeviceAccount, DeviceLedger
from estiba_scheduler.domain import Reason
from estiba_scheduler.quantities import format_bytes

from .measure import MemoryPeak
from .refusal import Refusal


class DeviceMemory:
    """One engine's account on its device, with the device's own figures beside it. All figures are bytes."""

    def __init__(
        self,
        account: DeviceAccount,
        free_bytes: Callable[[], int],
        holders: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._account = account
        self._free_bytes = free_bytes
        self._holders = holders

    @classmethod
    def on(cls, ledger: DeviceLedger, account: DeviceAccount) -> DeviceMemory:
        """The memory of `account`, with free bytes and the other holders as `ledger` knows them."""
        return cls(account, ledger.free_bytes, ledger.holders)

    @property
    def budget_bytes(self) -> int:
        return self._account.budget

    @property
    def held_bytes(self) -> int:
        return self._account.held

    def set_budget(self, budget_bytes: int) -> None:
        """Change the limit. Raises Refusal when more than that is held."""
        held = self.held_bytes
        if budget_bytes < held:
            raise Refusal(
                Reason.OUT_OF_MEMORY,
                f"a budget of {_exactly(budget_bytes)} is less than the {_exactly(held)} that the engine holds",
            )
        self._account.set_budget(budget_bytes)

    def require(self, need_bytes: int, budget_bytes: int) -> None:
        """Raise Refusal (409) unless the engine could hold `need_bytes` in all, under `budget_bytes`, right now."""
        if need_bytes > budget_bytes:
            raise Refusal(
                Reason.OUT_OF_MEMORY,
                f"{_exactly(need_bytes)} are needed but the budget given is {_exactly(budget_bytes)}; "
                "ask for fewer resident or KV bytes, or raise the budget",
            )
        held, free = self.held_bytes, max(0, self._free_bytes())
        if need_bytes - held > free:
            holders = ", ".join(f"{owner} {format_bytes(n)}" for owner, n in sorted(self._holders().items()))
            raise Refusal(
                Reason.INSUFFICIENT_MEMORY,
                f"{_exactly(need_bytes)} are needed, {_exactly(held)} are held and {_exactly(free)} are free: "
                f"{_exactly(need_bytes - held - free)} short. Free them first. "
                f"On the device: {holders or 'nothing of ours'}",
            )

    def peak_meter(self) -> MemoryPeak:
        account = self._account
        return MemoryPeak(reset=account.reset_peak, held=lambda: account.held, peak=lambda: account.peak)


def _exactly(n: int) -> str:
    """For a person and for a script."""
    return f"{format_bytes(n)} ({n} bytes)"
