"""What `up` says on the terminal: one line per decision and per change of a model, nothing twice."""

from __future__ import annotations

import logging

from estiba_scheduler.store import Decision

from .status_view import StatusView

log = logging.getLogger("estiba")


class Reporter:
    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._problems: frozenset[str] = frozenset()

    def decided(self, decision: Decision) -> None:
        if decision.kind == "Verdict":
            log.debug("%s: %s: %s", decision.deployment, decision.reason, decision.message)
        else:
            log.info("%s %s (%s): %s", decision.kind, decision.instance, decision.reason, decision.message)

    def seen(self, view: StatusView) -> None:
        for model in view.models:
            if self._states.get(model.id) != model.state:
                log.info("%s is %s", model.id, model.state)
                self._states[model.id] = model.state
        for problem in view.problems:
            if problem not in self._problems:
                log.warning("%s", problem)
        for problem in sorted(self._problems - set(view.problems)):
            log.info("over: %s", problem)
        self._problems = frozenset(view.problems)
