"""What clients may ask for, under which names, and what they are told when they ask for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from estiba_scheduler.store import LocalRedis
from tests.builders import a_deployment

from .scripted_engine import ScriptedEngine
from .waterfront import CHAT, Waterfront, a_waterfront, asking


async def test_a_model_that_is_not_there_is_not_found(front: Waterfront) -> None:
    answer = await front.ask("nobody")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert await front.series('estiba_gateway_requests_total{model="",outcome="unknown_model"}') == 1


async def test_a_model_that_was_applied_a_moment_ago_is_there(directory: Path, redis: LocalRedis) -> None:
    """The table is read every two seconds here; nobody has to wait for that."""
    async with a_waterfront(directory, redis, poll_s=2, hold_s=0.2) as front:
        for name in ("b", "c", "d"):
            await front.store.put_deployments([a_deployment("a"), a_deployment(name)])
            answer = await front.ask(name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready"), name


async def test_with_the_store_away_an_unknown_model_is_not_found_within_a_moment(
    front: Waterfront, redis: LocalRedis
) -> None:
    await redis.stop()
    assert (await front.ask("nobody")).json()["error"]["code"] == "model_not_found"


async def test_a_body_that_is_not_json_is_refused_in_openai_s_form(front: Waterfront) -> None:
    answer = await front.http.post(CHAT, content=b"hello")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (400, "invalid_body", "invalid_request_error")


async def test_a_body_of_more_than_four_mebibytes_is_refused_and_its_sender_reads_why(front: Waterfront) -> None:
    answer = await front.ask(content="x" * (5 * 1024 * 1024))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert (await front.http.get("/healthz")).status_code == 200  # the connection goes on


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("POST", "/v1/embeddings"), ("GET", "/")])
async def test_other_paths_are_refused_in_openai_s_form(front: Waterfront, method: str, path: str) -> None:
    answer = await front.http.request(method, path)
    assert answer.status_code in (404, 405)
    assert answer.json()["error"]["code"] == "not_found"


async def test_all_deployments_are_listed_resident_or_not(front: Waterfront, engine: ScriptedEngine) -> None:
    await front.deploys(a_deployment("a"), a_deployment("b"))
    await front.reports(engine.status())
    await front.state("a", "Ready")
    listed = (await front.http.get("/v1/models")).json()  # Z3: to be absent or asleep is no failure
    assert listed["object"] == "list"
    assert [(m["id"], m["object"], m["state"]) for m in listed["data"]] == [
        ("a", "model", "Ready"),
        ("b", "model", "Absent"),
    ]
    assert (await front.http.get("/v1/models/nobody")).json()["error"]["code"] == "model_not_found"


async def test_a_name_that_two_namespaces_have_means_the_default_one_s(front: Waterfront) -> None:
    await front.deploys(a_deployment("a"), a_deployment("a", namespace="team"))
    listed = (await front.http.get("/v1/models")).json()["data"]
    assert [m["id"] for m in listed] == ["default/a", "team/a"]
    assert (await front.http.get("/v1/models/a")).json()["deployment"] == "default/a"
    assert (await front.http.get("/v1/models/team/a")).json()["deployment"] == "team/a"


async def test_a_name_that_could_mean_two_models_is_refused(front: Waterfront) -> None:
    await front.deploys(a_deployment("a", namespace="blue"), a_deployment("a", namespace="red"))
    answer = await front.ask("a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_ambiguous")
    assert "blue/a, red/a" in answer.json()["error"]["message"]


async def test_an_engine_is_asked_by_the_name_that_it_knows(front: Waterfront, engine: ScriptedEngine) -> None:
    await front.reports(engine.status())
    answer = await front.http.post("/v1/completions", json={**asking("default/a", "é"), "prompt": "x"})
    assert answer.status_code == 200
    assert engine.exchanges[0].path == "/v1/completions"
    assert engine.exchanges[0].body == {**asking("a", "é"), "prompt": "x"}


async def test_metrics_forget_models_that_are_no_more(front: Waterfront, engine: ScriptedEngine) -> None:
    await front.reports(engine.status())
    await front.ask()
    assert 'model="default/a"' in (await front.http.get("/metrics")).text
    await front.deploys(a_deployment("b"))
    assert 'model="default/a"' not in (await front.http.get("/metrics")).text


async def test_how_long_requests_were_held_is_counted(front: Waterfront, engine: ScriptedEngine) -> None:
    asked = front.asks()
    await front.holds(1)
    await front.reports(engine.status())
    await asked
    await front.ask()
    assert await front.series('estiba_gateway_hold_seconds_count{model="default/a"}') == 1
    assert await front.series('estiba_gateway_requests_total{model="default/a",outcome="answered"}') == 2
