"""One chat request as a client sees it: what it met, when the first token came, how fast the rest, how it ended."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx


@dataclass(slots=True)
class Answer:
    """Times are in seconds since the request was sent; `tokens` counts generated ones as the engine reports them."""

    model: str
    sent_at: float
    text: str = ""
    status: int = 0
    error: str = ""
    tokens: int = 0
    ttft_s: float | None = None
    total_s: float = 0.0
    met_state: str = ""
    held_s: float = 0.0
    instance: str = ""
    finish_reason: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200 and not self.error and bool(self.finish_reason)

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per token after the first."""
        if self.ttft_s is None or self.tokens < 2:
            return None
        return (self.total_s - self.ttft_s) / (self.tokens - 1)


async def chat(
    client: httpx.AsyncClient, model: str, prompt: str, max_tokens: int = 32, timeout_s: float = 180.0, **params: object
) -> Answer:
    """Stream one chat completion. Never raises for what the server or the network does: the answer says it."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **params,
    }
    began = time.monotonic()
    answer = Answer(model=model, sent_at=time.time())
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body, timeout=timeout_s) as response:
            answer.status = response.status_code
            answer.met_state = response.headers.get("x-estiba-met-state", "")
            answer.held_s = float(response.headers.get("x-estiba-held-s", 0) or 0)
            answer.instance = response.headers.get("x-estiba-instance", "")
            if response.status_code != 200:
                answer.error = _message(await response.aread())
            else:
                async for line in response.aiter_lines():
                    _read(answer, line, time.monotonic() - began)
                if not answer.finish_reason and not answer.error:
                    answer.error = "the stream ended without a finish reason"
    except httpx.HTTPError as error:
        answer.error = f"{type(error).__name__}: {error}"
    answer.total_s = time.monotonic() - began
    return answer


def _read(answer: Answer, line: str, at: float) -> None:
    if not line.startswith("data:"):
        return
    data = line.removeprefix("data:").strip()
    if data == "[DONE]":
        return
    event = json.loads(data)
    if "error" in event:
        answer.error = str(event["error"].get("message", event["error"]))
        return
    for choice in event.get("choices", []):
        piece = (choice.get("delta") or {}).get("content") or ""
        if piece:
            answer.ttft_s = at if answer.ttft_s is None else answer.ttft_s
            answer.text += piece
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    usage = event.get("usage")
    if usage:
        answer.tokens = int(usage.get("completion_tokens", 0))


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
