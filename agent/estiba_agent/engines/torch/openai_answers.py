"""Answers in OpenAI's form: whole, or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .answer import Answer
from .http_body import disconnected
from .openai_errors import rejected
from .request import Event, Finished, Rejected, TextDelta


class AnswerForm(ABC):
    """How one kind of answer is written."""

    id_prefix: str
    object: str
    chunk_object: str

    def __init__(self, model: str, include_usage: bool) -> None:
        self._model = model
        self._include_usage = include_usage
        self._created = int(time.time())

    def whole(self, id: str, text: str, end: Finished) -> dict[str, Any]:
        return {**self._head(id, self.object), "choices": [self._choice(text, end)], "usage": _usage(end)}

    def opening(self, id: str) -> list[dict[str, Any]]:
        """What a stream begins with."""
        return []

    def chunks(self, id: str, event: TextDelta | Finished) -> list[dict[str, Any]]:
        """What is sent for one event."""
        if isinstance(event, TextDelta):
            return [self._chunk(id, [self._delta(event.text, None)])]
        chunks = [self._chunk(id, [self._delta(None, event.reason.value)])]
        if self._include_usage:
            chunks.append({**self._head(id, self.chunk_object), "choices": [], "usage": _usage(event)})
        return chunks

    @abstractmethod
    def _choice(self, text: str, end: Finished) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str | None, finish_reason: str | None) -> dict[str, Any]: ...

    def _chunk(self, id: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {**self._head(id, self.chunk_object), "choices": choices}
        return {**chunk, "usage": None} if self._include_usage else chunk

    def _head(self, id: str, kind: str) -> dict[str, Any]:
        return {"id": id, "object": kind, "created": self._created, "model": self._model}


class ChatForm(AnswerForm):
    id_prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, id: str) -> list[dict[str, Any]]:
        delta = {"role": "assistant", "content": ""}
        return [self._chunk(id, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])]

    def _choice(self, text: str, end: Finished) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reason.value}

    def _delta(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


class CompletionForm(AnswerForm):
    id_prefix = "cmpl-"
    object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, text: str, end: Finished) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": end.reason.value}

    def _delta(self, text: str | None, finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish_reason}


class EventStream(Response):
    """Sends an answer as server-sent events, and leaves it when the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answer, first: Event, form: AnswerForm) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._answer = answer
        self._first = first
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            gone.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            self._answer.leave()

    async def _send(self, send: Send) -> None:
        id = self._answer.request.id
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self._form.opening(id):
            await _send_data(send, chunk)
        await self._send_event(send, id, self._first)
        async for event in self._answer:
            await self._send_event(send, id, event)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_event(self, send: Send, id: str, event: Event) -> None:
        if isinstance(event, Rejected):
            # no [DONE]: a reader must not take this for a whole answer
            await _send_data(send, rejected(event).document())
            return
        for chunk in self._form.chunks(id, event):
            await _send_data(send, chunk)
        if isinstance(event, Finished):
            await _send(send, "[DONE]")


async def _send_data(send: Send, document: dict[str, Any]) -> None:
    await _send(send, json.dumps(document, ensure_ascii=False, separators=(",", ":")))


async def _send(send: Send, data: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


def _usage(end: Finished) -> dict[str, int]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }
