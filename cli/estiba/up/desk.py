"""Applying and deleting deployments: all of a request or, when something in it is wrong, nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from estiba_agent.api.bodies import CommandRefused, FactsAnswer
from estiba_operator.api import ModelDeployment, problems_of
from estiba_scheduler.domain import Deployment, Reason

from .agent_client import AgentClient, AgentRefused, AgentUnreachable
from .control_api import Applied
from .deployment_book import DeploymentBook, Entry

log = logging.getLogger(__name__)


class Desk:
    """Every method raises CommandRefused naming all that is wrong."""

    def __init__(self, agent: AgentClient, book: DeploymentBook) -> None:
        self._agent = agent
        self._book = book
        self._turn = asyncio.Lock()

    async def apply(self, documents: Sequence[dict[str, Any]]) -> list[Applied]:
        async with self._turn:
            wanted = _read(documents)
            facts = await asyncio.gather(*(self._facts(d.id, d.to_deployment()) for d in wanted))
            wrong = [answer for answer in facts if isinstance(answer, str)]
            if wrong:
                raise CommandRefused(422, Reason.BAD_MODEL, "\n".join([*wrong, "nothing was changed"]))
            entries: list[Entry] = []
            results: list[Applied] = []
            for document, answer in zip(wanted, facts, strict=True):
                assert isinstance(answer, FactsAnswer)
                entry, result = self._entry(document, answer)
                entries.append(entry)
                results.append(Applied(name=document.id.removeprefix("default/"), result=result))
            self._keep(entries)
            return results

    async def delete(self, names: Sequence[str]) -> list[str]:
        async with self._turn:
            found = {name: self._book.get(name) for name in names}
            unknown = sorted(name for name, entry in found.items() if entry is None)
            if unknown:
                known = ", ".join(d.id.removeprefix("default/") for d in self._book.deployments()) or "none"
                raise CommandRefused(
                    404, "NotFound", f"not served here: {', '.join(unknown)}; there are: {known}. Nothing was changed"
                )
            ids = [entry.deployment.id for entry in found.values() if entry is not None]
            try:
                self._book.delete(ids)
            except OSError as error:
                raise CommandRefused(503, "NotKept", f"the deletion can't be kept: {error}") from error
            return [name.removeprefix("default/") for name in ids]

    async def read_again(self) -> None:
        """After a restart: are the models of all deployments still there, and still the same?"""
        async with self._turn:
            entries: list[Entry] = []
            for entry in self._book.entries():
                answer = await self._facts(entry.deployment.id, entry.deployment)
                if isinstance(answer, str):
                    log.error("%s; the others go on", answer)
                    deployment = entry.deployment.model_copy(update={"problem": answer})
                    entries.append(Entry(deployment=deployment))
                else:
                    entries.append(Entry(deployment=_with(entry.deployment, answer), facts=answer))
            self._keep(entries)

    # -- inner ------------------------------------------------------------------------------------------------------

    async def _facts(self, name: str, deployment: Deployment) -> FactsAnswer | str:
        """What the model's files tell, or what is wrong with them."""
        try:
            return await self._agent.model_facts(deployment.model.model_copy(update={"digest": None}))
        except AgentRefused as error:
            return f"{name}: spec.model.uri: {error.message}"
        except AgentUnreachable as error:
            raise CommandRefused(503, "AgentUnreachable", f"{error}; try again in a moment") from error

    def _entry(self, document: ModelDeployment, answer: FactsAnswer) -> tuple[Entry, str]:
        before = self._book.get(document.id)
        known = before.deployment if before is not None and before.deployment.id == document.id else None
        new = _with(
            document.to_deployment(
                created_at=known.created_at if known else time.time(), generation=known.generation if known else 1
            ),
            answer,
        )
        if known is None:
            return Entry(deployment=new, facts=answer), "created"
        if new == known:
            return Entry(deployment=known, facts=answer), "unchanged"
        return Entry(deployment=new.model_copy(update={"generation": known.generation + 1}), facts=answer), "configured"

    def _keep(self, entries: list[Entry]) -> None:
        try:
            self._book.put(entries)
        except OSError as error:
            raise CommandRefused(
                503, "NotKept", f"the deployments can't be kept: {error}; nothing was changed"
            ) from error


def _read(documents: Sequence[dict[str, Any]]) -> list[ModelDeployment]:
    read: list[ModelDeployment] = []
    wrong: list[str] = []
    for number, document in enumerate(documents):
        try:
            read.append(ModelDeployment.model_validate(document))
        except ValidationError as error:
            wrong += [f"document {number + 1}: {problem}" for problem in problems_of(error)]
    names = [document.id for document in read]
    wrong += [f"{name} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if wrong:
        raise CommandRefused(422, Reason.INVALID, "\n".join([*wrong, "nothing was changed"]))
    return read


def _with(deployment: Deployment, answer: FactsAnswer) -> Deployment:
    """The deployment with its model pinned to the contents that were found."""
    model = deployment.model.model_copy(update={"digest": answer.digest})
    return deployment.model_copy(update={"model": model, "problem": ""})
