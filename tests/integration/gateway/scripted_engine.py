"""An HTTP server on loopback that answers as its script says: hand-backs, breaks and pauses at the right moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from estiba_scheduler.domain import InstanceState, InstanceStatus
from tests.builders import an_instance

TEXT = "stowed"


class Exchange:
    """One request, and the means to answer it in pieces."""

    def __init__(
        self, engine: ScriptedEngine, path: str, headers: dict[str, str], raw: bytes, writer: asyncio.StreamWriter
    ) -> None:
        self.engine = engine
        self.path = path
        self.headers = headers
        self.raw = raw
        self.gone = asyncio.Event()
        self._writer = writer

    @property
    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.raw))

    @property
    def content(self) -> str:
        return str(self.body["messages"][0]["content"])

    async def head(self, status: int, headers: dict[str, str]) -> None:
        told = {"x-estiba-engine": self.engine.instance, "connection": "close", **headers}
        named = (f"{name}: {value}" for name, value in told.items() if value)
        lines = [f"HTTP/1.1 {status} Scripted", *named, "", ""]
        await self.put("\r\n".join(lines).encode())

    async def whole(self, status: int, document: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        head = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.head(status, head)
        await self.put(body)

    async def begin_stream(self) -> None:
        await self.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})

    async def event(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        await self.chunk(f"data: {text}\n\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.put(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_stream(self) -> None:
        await self.put(b"0\r\n\r\n")

    async def put(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """As a process that is killed does once what it wrote is on its way."""
        self._writer.close()
        await self._writer.wait_closed()

    def break_off(self) -> None:
        """As a process that is killed does; what was written last may be lost."""
        self._writer.transport.abort()


Behaviour = Callable[[Exchange], Awaitable[None]]


class ScriptedEngine:
    """Answers each request with the next behaviour of `script`, and with `usual` once there is none."""

    def __init__(self, instance: str = "a-1", deployment: str = "default/a") -> None:
        self.instance = instance
        self.deployment = deployment
        self.script: deque[Behaviour] = deque()
        self.usual: Behaviour = answer
        self.exchanges: list[Exchange] = []
        self.open = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> ScriptedEngine:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """No connection is taken any more, as by an engine that is gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def status(self, state: InstanceState = InstanceState.READY, **changes: Any) -> InstanceStatus:
        """What an agent would report of it."""
        name = self.deployment.split("/")[1]
        status = an_instance(name, state, spec_id=self.instance).status
        assert status is not None
        url = self.url if state is InstanceState.READY else None
        fields = {"id": self.instance, "deployment": self.deployment, "url": url, **changes}
        return status.model_copy(update=fields)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        watching: asyncio.Task[None] | None = None
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            exchange = Exchange(self, head[0].split(" ")[1], headers, raw, writer)
            self.exchanges.append(exchange)
            watching = asyncio.create_task(_watch(reader, exchange))
            await (self.script.popleft() if self.script else self.usual)(exchange)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller left
        finally:
            if watching is not None:
                watching.cancel()
            self.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _watch(reader: asyncio.StreamReader, exchange: Exchange) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()
    exchange.gone.set()


# -- behaviours -------------------------------------------------------------------------------------------------------


def piece(text: str | None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "a", "choices": [choice]}


async def answer(exchange: Exchange) -> None:
    if exchange.body.get("stream"):
        await exchange.begin_stream()
        await exchange.event(piece(TEXT))
        await exchange.event(piece(None, "stop"))
        await exchange.event("[DONE]")
        await exchange.end_stream()
        return
    message = {"role": "assistant", "content": TEXT}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": exchange.body["model"]}
    await exchange.whole(200, {**head, "choices": [choice], "usage": usage})


async def hand_back(exchange: Exchange) -> None:
    error = {"message": "draining", "type": "server_error", "param": None, "code": "engine_draining"}
    await exchange.whole(503, {"error": error}, {"x-estiba-handed-back": "1", "retry-after": "1"})


async def wrong_engine(exchange: Exchange) -> None:
    """An engine that checks who is meant."""
    await exchange.whole(421, {"error": {"message": "another engine"}}, {"x-estiba-engine": ""})


async def answer_of_another(exchange: Exchange) -> None:
    """An engine that does not check who is meant, and says who it is."""
    await exchange.whole(200, {"choices": [{"message": {"content": "of another model"}}]}, {"x-estiba-engine": "b-9"})


async def break_before(exchange: Exchange) -> None:
    exchange.break_off()


async def break_within_the_document(exchange: Exchange) -> None:
    await exchange.head(200, {"content-type": "application/json", "content-length": "1000"})
    await exchange.put(b'{"choices": [')
    exchange.break_off()


async def break_within_the_stream(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.event(piece("one "))
    await exchange.event(piece("two "))
    await exchange.chunk(b'data: {"id": "c", "choi')  # the break comes in the middle of an event
    await exchange.close()


async def stream_for_ever(exchange: Exchange) -> None:
    await exchange.begin_stream()
    while not exchange.gone.is_set():
        await exchange.event(piece("more "))
        await asyncio.sleep(0.01)


async def never(exchange: Exchange) -> None:
    """Nothing, until the caller leaves."""
    await exchange.gone.wait()


def when(event: asyncio.Event, then: Behaviour) -> Behaviour:
    async def behave(exchange: Exchange) -> None:
        await event.wait()
        await then(exchange)

    return behave
