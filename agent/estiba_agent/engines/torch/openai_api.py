"""The OpenAI face of an engine: chat completions, completions, models."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .answer import Answer
from .chat import Prompts, checked
from .engine_loop import EngineLoop, ServedModel
from .handing_back import handed_back_text, rejection_in
from .http_body import BodyRefused, bounded_body, disconnected
from .openai_answers import AnswerForm, ChatForm, CompletionForm, EventStream
from .openai_errors import OpenAIError, invalid, rejected
from .openai_types import ChatBody, CompletionBody, GenerationBody
from .request import GenerationRequest, Rejected, RejectionCode, SamplingParams

log = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 8 * 1024 * 1024

Body = TypeVar("Body", bound=GenerationBody)


class OpenAIFace:
    """Turns OpenAI requests into generation requests of one engine, and its events into OpenAI answers."""

    def __init__(self, engine: EngineLoop) -> None:
        self._engine = engine
        self._prompts = Prompts()
        self._created = int(time.time())

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._in_form(self._chat), methods=["POST"]),
                Route("/v1/completions", self._in_form(self._completion), methods=["POST"]),
                Route("/v1/models", self._in_form(self._models), methods=["GET"]),
                Route("/v1/models/{name:path}", self._in_form(self._model), methods=["GET"]),
            ],
            exception_handlers={404: _no_such_path, 405: _no_such_path},
        )

    async def _chat(self, request: Request) -> Response:
        body = await self._read(request, ChatBody)
        model = self._serving_model()
        prompt = await self._prompts.of_chat(model, body.messages)
        form = ChatForm(self._engine.launch.served_name, body.include_usage)
        return await self._answer(request, self._generation(form, model, body, prompt, body.limit), form)

    async def _completion(self, request: Request) -> Response:
        body = await self._read(request, CompletionBody)
        model = self._serving_model()
        given = body.one_prompt
        prompt = await self._prompts.of_text(model, given) if isinstance(given, str) else checked(model, given)
        form = CompletionForm(self._engine.launch.served_name, body.include_usage)
        return await self._answer(request, self._generation(form, model, body, prompt, body.limit), form)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, request: Request) -> Response:
        self._check_name(request.path_params["name"])
        return JSONResponse(self._card())

    # -- steps ------------------------------------------------------------------------------------------------------

    async def _read(self, request: Request, kind: type[Body]) -> Body:
        raw = await bounded_body(request, BODY_LIMIT_BYTES)
        try:
            body = kind.model_validate_json(raw)
        except ValidationError as error:
            raise invalid(error) from None
        self._check_name(body.model)
        return body

    def _check_name(self, name: str) -> None:
        served = self._engine.launch.served_name
        if name != served:
            raise OpenAIError(
                404, f"the model {name[:200]!r} is not served here, {served!r} is", "model_not_found", "model"
            )

    def _serving_model(self) -> ServedModel:
        """The loaded model; hands the request back where the engine doesn't take any."""
        code = rejection_in(self._engine.state().phase, stopping=False)
        model = self._engine.model
        if code is None and model is not None:
            return model
        code = code or RejectionCode.LOADING
        raise rejected(Rejected(code, handed_back_text(code)))

    def _generation(
        self, form: AnswerForm, model: ServedModel, body: GenerationBody, prompt: tuple[int, ...], limit: int | None
    ) -> GenerationRequest:
        biases = tuple((body.logit_bias or {}).items())
        outside = next((token for token, _ in biases if not 0 <= token < model.vocabulary), None)
        if outside is not None:
            raise OpenAIError(
                400,
                f"logit_bias: token id {outside} is not in the vocabulary (0 to {model.vocabulary - 1})",
                "invalid_value",
                "logit_bias",
            )
        return GenerationRequest(
            id=f"{form.id_prefix}{uuid.uuid4().hex}",
            prompt=prompt,
            max_tokens=limit,
            sampling=SamplingParams(
                temperature=1.0 if body.temperature is None else body.temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                top_k=max(0, body.top_k or 0),
                seed=body.seed,
                presence_penalty=body.presence_penalty or 0.0,
                frequency_penalty=body.frequency_penalty or 0.0,
                logit_bias=biases,
            ),
            stop=body.stops,
            ignore_eos=body.ignore_eos,
            streaming=bool(body.stream),
        )

    async def _answer(self, request: Request, generation: GenerationRequest, form: AnswerForm) -> Response:
        answer = Answer(self._engine, generation)
        streaming = False
        try:
            if generation.streaming:
                # the status goes out with the first event, so that what is handed back gets its 503
                first = await _unless_gone(request, answer.__anext__())
                if isinstance(first, Rejected):
                    raise rejected(first)
                streaming = True
                return EventStream(answer, first, form)
            text, end = await _unless_gone(request, answer.whole())
            if isinstance(end, Rejected):
                raise rejected(end)
            return JSONResponse(form.whole(generation.id, text, end))
        finally:
            if not streaming:
                answer.leave()

    def _card(self) -> dict[str, object]:
        model = self._engine.model
        context = model.context_tokens if model else self._engine.launch.model.context_tokens
        return {
            "id": self._engine.launch.served_name,
            "object": "model",
            "created": self._created,
            "owned_by": "estiba",
            "max_model_len": context,
        }

    @staticmethod
    def _in_form(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Answer whatever goes wrong in OpenAI's form."""

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except OpenAIError as error:
                return error.response()
            except BodyRefused as refused:
                return OpenAIError(refused.status, refused.message).response()
            except _ClientGone:
                return Response(status_code=499)  # nobody reads it
            except Exception:
                log.exception("a request failed")
                return OpenAIError(500, "internal error, see the engine's log", "internal_error").response()

        return handler


class _ClientGone(Exception):
    """The client closed its connection before the answer was there."""


T = TypeVar("T")


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, or _ClientGone as soon as the client has closed its connection."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise _ClientGone
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return OpenAIError(
        status, f"{request.method} {request.url.path} is not served by this engine", "not_found"
    ).response()
