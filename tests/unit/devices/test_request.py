from __future__ import annotations

import pytest

from estiba_agent.devices import DeviceRequest, parse_device
from estiba_agent.devices.cpu import product_of
from tests.builders import GIB, MIB


def test_a_device_as_a_person_writes_it() -> None:
    assert parse_device("cpu:memory=700MiB,link=1GiB/s,threads=2,reserve=50MiB") == DeviceRequest(
        "cpu", 700 * MIB, float(GIB), 2, 50 * MIB
    )
    assert parse_device("cpu") == DeviceRequest("cpu")
    assert parse_device(" nvml ") == DeviceRequest("nvml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu:memory=1GiB", "the kind 'gpu' is not known; write cpu:memory="),
        ("cpu:", "nothing follows the colon"),
        ("cpu:memroy=1GiB", "the option 'memroy=1GiB' is not known; there are memory, link, threads, reserve"),
        ("cpu:memory", "the option 'memory' is not known"),
        ("cpu:memory=1GiB,memory=2GiB", "memory is given twice"),
        ("cpu:memory=lots", "memory: "),
        ("cpu:memory=0", "holds nothing"),
        ("cpu:memory=-1GiB", "memory: "),
        ("cpu:link=1GiB", "link: "),
        ("cpu:threads=0", "'0' is not a number of threads (1 to 1024)"),
        ("cpu:threads=²", "is not a number of threads"),
        ("cpu:threads=999999999", "is not a number of threads"),
        ("cpu:memory=1GiB,reserve=1GiB", "the reserve leaves no memory"),
        ("nvml:memory=1GiB", "nvml takes no options"),
        ("", "the kind '' is not known"),
    ],
)
def test_what_is_wrong_with_a_device_is_said_with_how_to_write_it(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="device") as error:
        parse_device(text)
    assert said in str(error.value)
    assert repr(text) in str(error.value)


def test_profiles_are_shared_by_devices_that_differ_in_memory_alone() -> None:
    small, large = (product_of(parse_device(f"cpu:memory={m},link=1GiB/s")) for m in ("1GiB", "2GiB"))
    assert small == large
    others = {product_of(parse_device(text)) for text in ("cpu", "cpu:link=2GiB/s", "cpu:link=1GiB/s,threads=2")}
    assert len(others | {small}) == 4
