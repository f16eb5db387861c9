"""What a user types beside a running `estiba up`, and what its endpoints tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError
from prometheus_client.parser import text_string_to_metric_families

from estiba.chat_probe import chat
from estiba.up.status_view import StatusView
from estiba_scheduler.domain import ModelProfile
from tests.waiting import until

from .running_up import DEADLINE_S, RunningUp, a_document, write

pytestmark = pytest.mark.slow


@pytest.fixture
async def measured(directory: Path) -> AsyncIterator[RunningUp]:
    """`a` was measured and serves."""
    running = RunningUp(directory, write(directory / "a.yaml", a_document("a", replicas={"min": 1})), measure=True)
    running.start()
    try:
        await running.answers()
        await running.until_ready("a")
        yield running
    finally:
        running.kill_all()


async def test_status_metrics_and_profiles_carry_the_same_numbers(measured: RunningUp) -> None:
    up = measured
    assert (await chat(up.gateway, "a", "hello", 8, ignore_eos=True)).ok
    await up.until(lambda v: v.instances[0].status is not None and v.instances[0].status.in_flight == 0, "it rests")

    async def all_three() -> tuple[StatusView, dict[tuple[str, str], float], list[ModelProfile]]:
        shown = await up.command("status", "--json")
        assert shown.returncode == 0, shown.stderr
        view = StatusView.model_validate_json(shown.stdout)
        assert view.agent_url is not None
        async with httpx.AsyncClient(base_url=view.agent_url) as agent:
            text = (await agent.get("/metrics")).text
            profiles = [ModelProfile.model_validate(p) for p in (await agent.get("/v1/profiles")).json()]
        samples = {
            (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return view, samples, profiles

    view, samples, profiles = await all_three()
    status = view.instances[0].status
    assert status is not None

    def series(name: str, **labels: str) -> list[float]:
        return [
            value
            for (sample, text), value in samples.items()
            if sample == name and labels.items() <= json.loads(text).items()
        ]

    assert series("estiba_instance_resident_bytes", instance=status.id) == [status.resident_bytes]
    assert series("estiba_instance_device_bytes", instance=status.id) == [status.device_bytes]
    assert series("estiba_instance_state", instance=status.id, state="Ready") == [1]
    (device,) = view.devices
    assert series("estiba_device_memory_bytes", device=device.uuid) == [device.memory_bytes]
    assert list(view.profiles) == profiles
    (profile,) = profiles
    assert profile.measured_at > 0
    alone = [k for k in profile.sensitivity.knots if k.batch == 1]
    shortest = min(k.context_tokens for k in alone)
    for knot in (k for k in alone if k.context_tokens == shortest):
        ratio = f"{knot.resident_fraction:.3f}"
        assert series("estiba_profile_tpot_seconds", resident_ratio=ratio) == pytest.approx([knot.tpot_s])
    ladder = {r.rung.value: r.seconds_s for r in profile.reload}
    for rung, seconds in ladder.items():
        assert series("estiba_profile_reload_seconds", rung=rung) == pytest.approx([seconds])
    (model,) = view.models
    assert model.wake_s == pytest.approx(ladder["sleep1"])
    assert model.profile == "measured"


async def test_the_official_client_works_unchanged(up: RunningUp) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    async with AsyncOpenAI(base_url=f"{up.gateway.base_url}/v1", api_key="none", max_retries=0) as client:
        assert [m.id for m in (await client.models.list()).data] == ["a"]
        whole = await client.chat.completions.create(model="a", messages=messages, max_tokens=8, temperature=0)
        assert whole.usage is not None
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await client.chat.completions.create(
                model="a", messages=messages, max_tokens=8, temperature=0, stream=True
            )
            if chunk.choices
        ]
        assert "".join(pieces) == whole.choices[0].message.content
        with pytest.raises(NotFoundError) as error:
            await client.chat.completions.create(model="zz", messages=messages)
        assert error.value.code == "model_not_found"


async def test_z1_ten_requests_for_a_sleeper_are_held_and_wake_it_once(directory: Path) -> None:
    file = write(directory / "a.yaml", a_document("a", idle={"afterSeconds": 0.2}))
    up = RunningUp(directory, file)
    up.start()
    try:
        await up.answers()
        first = await chat(up.gateway, "a", "hello", 4, ignore_eos=True)
        assert first.ok, first.error
        assert first.met_state == "Absent"
        assert first.held_s > 0
        await up.until(lambda v: v.models[0].state == "Asleep1", "it went to sleep", DEADLINE_S)
        before = len(await up.kinds("a"))
        ten = await asyncio.gather(*(chat(up.gateway, "a", f"{n}", 4, ignore_eos=True) for n in range(10)))
        assert [a.error for a in ten] == [""] * 10
        assert {a.met_state for a in ten} == {"Asleep1"}
        since = (await up.kinds("a"))[before:]
        assert since.count("Wake") == 1
        assert "Start" not in since
    finally:
        up.kill_all()


async def test_who_waits_past_the_bound_is_told_when_to_come_again(directory: Path) -> None:
    """Its device is too small for ever: held up to the bound, then 503 with Retry-After and the reason."""
    file = write(directory / "a.yaml", a_document("a"))
    up = RunningUp(directory, file, "--hold", "1", device="cpu:memory=1MiB")
    up.start()
    try:
        await up.answers()
        body = {"model": "a", "messages": [{"role": "user", "content": "x"}]}
        answer = await up.gateway.post("/v1/chat/completions", json=body)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "default/a" in answer.json()["error"]["message"]
        view = await up.until(lambda v: v.models[0].reason == "InsufficientDeviceMemory", "it says why", DEADLINE_S)
        assert "1.0 MiB" in view.models[0].message, view.models[0].message
    finally:
        up.kill_all()


async def test_what_is_wrong_in_a_file_is_said_and_what_runs_goes_on(up: RunningUp, directory: Path) -> None:
    no_model = directory / "not-a-model"
    no_model.mkdir()
    (no_model / "readme.txt").write_text("nothing")
    torn = directory / "torn.gguf"
    torn.write_bytes(b"GGUF" + bytes(40))
    good = a_document("fine", seed=7)
    cases: list[tuple[dict[str, Any], str]] = [
        (a_document("b", prioritty=1), "spec.prioritty: there is no such field; did you mean 'priority'?"),
        (a_document("b", kvCache="8 bananas"), "spec.kvCache: '8 bananas'"),
        (a_document("b" * 200), "metadata.name: 'bbb"),
        (a_document("b", uri="file:///no/such/folder"), "/no/such/folder"),
        (a_document("b", uri=f"file://{no_model}"), str(no_model)),
        (a_document("b", uri=f"file://{torn}"), str(torn)),
        (a_document("b", uri="package://no_such_package/x.gguf"), "no_such_package"),
        (a_document("b", uri="random://qwen3?hidden=banana"), "hidden"),
    ]
    for document, said in cases:
        file = write(directory / "bad.yaml", good, document)
        done = await up.command("apply", "-f", str(file))
        assert done.returncode == 2, f"{said}: {done.stdout}{done.stderr}"
        assert said in done.stderr, done.stderr
        assert "nothing was changed" in done.stderr or "bad.yaml" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    view = await up.until(lambda v: True, "")
    assert [m.name for m in view.models] == ["a"], "a good document beside a bad one is not applied either"
    assert (await chat(up.gateway, "a", "hello", 4, ignore_eos=True)).ok


async def test_apply_explain_top_and_delete(up: RunningUp, directory: Path) -> None:
    file = write(directory / "b.yaml", a_document("b", seed=1))
    applied = await up.command("apply", "-f", str(file))
    assert (applied.returncode, applied.stdout) == (0, "modeldeployment/b created\n"), applied.stderr
    assert (await up.command("apply", "-f", str(file))).stdout == "modeldeployment/b unchanged\n"
    write(file, a_document("b", seed=1, priority=5))
    assert (await up.command("apply", "-f", str(file))).stdout == "modeldeployment/b configured\n"
    answered = await chat(up.gateway, "b", "hello", 4, ignore_eos=True)
    assert answered.ok, answered.error
    explained = await up.command("explain", "b")
    assert "1 request waits" in " ".join(explained.stdout.split()), explained.stdout
    shown = await up.command("top", "--count", "1")
    assert shown.returncode == 0
    for words in ("MODEL", "INSTANCE", "cpu-0"):
        assert words in shown.stdout
    unknown = await up.command("delete", "zz")
    assert (unknown.returncode, "not served here: zz; there are: a, b" in unknown.stderr) == (2, True), unknown.stderr
    assert (await up.command("delete", "b")).stdout == "modeldeployment/b deleted\n"
    await up.until(lambda v: all("b-" not in i.spec.id for i in v.instances), "b is gone", DEADLINE_S)
    assert len(up.engines()) == 1
    missing = await up.gateway.post("/v1/chat/completions", json={"model": "b", "messages": []})
    assert missing.status_code in (400, 404)


async def test_a_second_up_on_the_same_state_is_refused(up: RunningUp) -> None:
    second = await up.command("up", "--device", "cpu:memory=10MiB", "--port", "0")
    assert second.returncode == 2
    assert "another `estiba up` runs on" in second.stderr
    assert (await chat(up.gateway, "a", "hello", 4, ignore_eos=True)).ok


async def test_a_port_that_is_taken_is_said(up: RunningUp, directory: Path) -> None:
    port = str(up.gateway.base_url.port)
    other = RunningUp(directory / "other", None, "--port", port)
    (directory / "other").mkdir()
    other.start()
    try:
        until(lambda: other.exit_code is not None, DEADLINE_S)
        assert other.exit_code in (1, 2)
        assert port in other.last_words(3)
        assert other.left_over() == []
    finally:
        other.kill_all()


async def test_without_a_device_it_ends_at_once_with_the_reason(directory: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("a GPU is here")
    up = RunningUp(directory, device="nvml")
    up.start()
    try:
        until(lambda: up.exit_code is not None, DEADLINE_S)
        assert up.exit_code == 1
        assert "no device was found for nvml: " in up.last_words(3)
        assert "no GPU can be used: NVML does not answer" in up.last_words(3)
        assert up.left_over() == []
    finally:
        up.kill_all()


async def test_models_spread_over_two_devices(directory: Path) -> None:
    """Each fits on one of them and not beside the other."""
    documents = [a_document(name, seed=n, kvCache="8MiB", offload={"mode": "Never"}) for n, name in enumerate("ab")]
    up = RunningUp(
        directory, write(directory / "ab.yaml", *documents), "--device", "cpu:memory=8MiB", device="cpu:memory=8MiB"
    )
    up.start()
    try:
        await up.answers()
        answers = await asyncio.gather(*(chat(up.gateway, name, "hello", 4, ignore_eos=True) for name in "ab"))
        assert [a.error for a in answers] == ["", ""]
        await up.until_ready("a", "b")
        view = await up.until(lambda v: len(v.instances) == 2, "two instances")
        assert {i.spec.device for i in view.instances} == {"cpu-0", "cpu-1"}
    finally:
        up.kill_all()


async def test_a_measurement_makes_way_for_requests_and_goes_on_later(directory: Path) -> None:
    up = RunningUp(directory, write(directory / "a.yaml", a_document("a", idle={"afterSeconds": 0.2})), measure=True)
    up.start()
    try:
        await up.answers()
        await up.until(lambda v: [m.profile for m in v.models] == ["measured"], "a is measured", DEADLINE_S)
        file = write(directory / "b.yaml", a_document("b", seed=1, idle={"afterSeconds": 0.2}))
        assert (await up.command("apply", "-f", str(file))).returncode == 0
        await up.until(
            lambda v: any(j.deployment == "default/b" and j.state == "running" and j.done > 0 for j in v.jobs),
            "b is being measured",
            DEADLINE_S,
        )
        answered = await chat(up.gateway, "a", "hello", 4, ignore_eos=True)
        assert answered.ok, answered.error
        assert "measuring b makes way for requests" in up.last_words(200)
        await up.until(lambda v: {m.profile for m in v.models} == {"measured"}, "b is measured, too", DEADLINE_S)
        assert (await chat(up.gateway, "b", "hello", 4, ignore_eos=True)).ok
    finally:
        up.kill_all()
