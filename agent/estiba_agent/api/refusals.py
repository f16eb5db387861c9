"""Every error of the agent's APIs in one form: `{"error": {"reason": ..., "message": ...}}`."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from .bodies import CommandRefused

log = logging.getLogger(__name__)

SHOWN_PROBLEMS = 5


def answer_in_kind(app: FastAPI) -> None:
    """Install the error handlers."""

    @app.exception_handler(CommandRefused)
    async def refused(_: Request, error: CommandRefused) -> JSONResponse:
        return _error(error.status, error.reason, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = (
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()[:SHOWN_PROBLEMS]
        )
        return _error(422, "Invalid", "; ".join(problems))

    @app.exception_handler(HTTPException)
    async def no_such_call(request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, "Invalid", f"no call {request.method} {request.url.path}: {error.detail}")

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        log.exception("%s %s broke", request.method, request.url.path, exc_info=error)
        return _error(500, "Internal", f"{type(error).__name__}: {error}; the agent's log has more")


def _error(status: int, reason: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"reason": reason, "message": message}}, status)
