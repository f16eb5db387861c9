"""Answers what a model's files tell, in a worker thread: converting or making a model may take a while."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from estiba_agent.api.bodies import CommandRefused, FactsAnswer, FactsRequest
from estiba_agent.engines.torch import ENGINE, engine_version
from estiba_agent.models import BadModel, resolve
from estiba_scheduler.domain import ModelSource, Reason

log = logging.getLogger(__name__)

AT_ONCE = 2


class ModelFactsDesk:
    def __init__(self, model_cache: Path) -> None:
        self._model_cache = model_cache
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def answer(self, request: FactsRequest) -> FactsAnswer:
        """Raises CommandRefused (422) for a model that can't be read, or an engine that isn't known."""
        model = request.model
        if model.engine != ENGINE:
            raise CommandRefused(422, Reason.INVALID, f"engine {model.engine!r} is not known here; write {ENGINE!r}")
        async with self._turns:
            try:
                return await asyncio.to_thread(self._read, model)
            except BadModel as error:
                raise CommandRefused(422, Reason.BAD_MODEL, str(error)) from error

    def _read(self, model: ModelSource) -> FactsAnswer:
        found = resolve(model.uri, self._model_cache, lambda note: log.info("%s: %s", model.uri, note))
        return FactsAnswer(
            digest=found.digest,
            dtype=found.resolved_dtype(model.dtype),
            engine=ENGINE,
            engine_version=engine_version(),
            facts=found.facts(model.dtype),
        )
