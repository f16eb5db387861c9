"""The memory of a cpu device among real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from estiba_agent.devices import CpuProvider, DeviceLedger, DeviceOutOfMemory, parse_device
from tests.builders import MIB

HOLDER = """
import sys
from pathlib import Path
from estiba_agent.devices import DeviceLedger
account = DeviceLedger(Path(sys.argv[1]), int(sys.argv[2])).account(sys.argv[3], int(sys.argv[2]))
for line in sys.stdin:
    try:
        (account.grow if line[0] == "+" else account.shrink)(int(line[1:]))
        print("ok", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""
DEVICE = 100 * MIB


class Holder:
    """A process that takes and gives back as it is told."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(directory), str(DEVICE), owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, what: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path / "device", "other")
    yield holder
    holder.kill()


def test_two_processes_never_hold_more_than_there_is(tmp_path: Path, other: Holder) -> None:
    ledger = DeviceLedger(tmp_path / "device", DEVICE)
    mine = ledger.account("mine", DEVICE)
    mine.grow(60 * MIB)
    assert other.tell(f"+{40 * MIB}") == "ok"
    assert other.tell("+1") == ("DeviceOutOfMemory other wants 1 B more, and 0 B of the device's 100 MiB are free")
    with pytest.raises(DeviceOutOfMemory):
        mine.grow(1)
    assert mine.held == 60 * MIB, "what was refused was not taken"
    mine.shrink(10 * MIB)
    assert other.tell(f"+{10 * MIB}") == "ok"
    assert ledger.holders() == {"mine": 50 * MIB, "other": 50 * MIB}


GREEDY = """
import sys
from pathlib import Path
from estiba_agent.devices import DeviceLedger, DeviceOutOfMemory
account = DeviceLedger(Path(sys.argv[1]), 1000).account(sys.argv[2], 1000)
print("ready", flush=True)
sys.stdin.readline()
try:
    while True:
        account.grow(1)
except DeviceOutOfMemory:
    print(account.held, flush=True)
sys.stdin.readline()
"""


def test_processes_that_all_take_at_once_get_exactly_what_there_is(tmp_path: Path) -> None:
    greedy = [
        subprocess.Popen(
            [sys.executable, "-c", GREEDY, str(tmp_path), f"g{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    held = 0
    for step in ("ready", "taken"):
        for process in greedy:
            assert process.stdout is not None
            said = process.stdout.readline()
            held += int(said) if step == "taken" else 0
        for process in greedy:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    for process in greedy:
        process.communicate()
    assert held == 1000


def test_what_a_killed_process_held_is_free_again(tmp_path: Path, other: Holder) -> None:
    ledger = DeviceLedger(tmp_path / "device", DEVICE)
    assert other.tell(f"+{90 * MIB}") == "ok"
    mine = ledger.account("mine", DEVICE)
    with pytest.raises(DeviceOutOfMemory):
        mine.grow(20 * MIB)
    other.kill()
    mine.grow(20 * MIB)
    assert ledger.holders() == {"mine": 20 * MIB}


def test_a_budget_is_kept_although_the_device_has_room(tmp_path: Path) -> None:
    account = DeviceLedger(tmp_path, DEVICE).account("a", 10 * MIB)
    account.grow(8 * MIB)
    with pytest.raises(DeviceOutOfMemory, match="a holds 8 MiB and wants 4 MiB more: over its budget of 10 MiB"):
        account.grow(4 * MIB)
    account.set_budget(12 * MIB)
    account.grow(4 * MIB)
    assert account.held == account.peak == 12 * MIB
    account.shrink(12 * MIB)
    assert (account.held, account.peak) == (0, 12 * MIB)
    account.reset_peak()
    assert account.peak == 0


def test_nothing_is_given_back_that_is_not_held_nor_taken_backwards(tmp_path: Path) -> None:
    account = DeviceLedger(tmp_path, DEVICE).account("a", DEVICE)
    account.grow(5)
    for wrong in (6, -1):
        with pytest.raises(ValueError, match="can't give"):
            account.shrink(wrong)
    with pytest.raises(ValueError, match="shrink gives back"):
        account.grow(-1)
    assert account.held == 5


def test_threads_of_one_process_share_an_account_without_losing_a_byte(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path, DEVICE)
    account = ledger.account("a", DEVICE)

    def take_and_give() -> None:
        for _ in range(50):
            account.grow(3)
            account.shrink(2)

    threads = [threading.Thread(target=take_and_give) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.held == ledger.used_bytes() == 200


def test_a_file_that_is_no_entry_costs_its_file_and_nothing_else(tmp_path: Path) -> None:
    ledger = DeviceLedger(tmp_path, DEVICE)
    account = ledger.account("a", DEVICE)
    account.grow(7)
    (tmp_path / "1-torn.held").write_text('{"owner": "torn", "pi')
    (tmp_path / "2-other.held").write_text("[]")
    assert ledger.holders() == {"a": 7}
    assert not (tmp_path / "1-torn.held").exists()


def test_a_pid_that_another_process_has_by_now_holds_nothing(tmp_path: Path, other: Holder) -> None:
    ledger = DeviceLedger(tmp_path / "device", DEVICE)
    assert other.tell("+50") == "ok"
    (entry,) = (tmp_path / "device").glob("*other.held")
    entry.write_text(entry.read_text().replace('"started_at": ', '"started_at": 1'))
    assert ledger.used_bytes() == 0


def test_a_device_tells_what_is_free_on_it_now(tmp_path: Path, other: Holder) -> None:
    """Free memory is read, not computed from what was planned."""
    provider = CpuProvider("n1", [parse_device("cpu:memory=100MiB,reserve=10MiB")], tmp_path)
    (device,), (link,) = provider.devices()
    assert (device.uuid, device.free_bytes, device.reserve_bytes) == ("cpu-0", DEVICE, 10 * MIB)
    assert device.host_link == link.id
    account = DeviceLedger(tmp_path / "ledger" / "cpu-0", DEVICE).account("a", DEVICE)
    account.grow(30 * MIB)
    assert provider.devices()[0][0].free_bytes == 70 * MIB
    account.close()
    account.close()
    assert provider.devices()[0][0].free_bytes == DEVICE
