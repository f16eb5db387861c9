"""The one place that knows how things are named in Redis. A change of a value's meaning raises the version.

docs/reference/store.md shows the same to people.
"""

from __future__ import annotations

import hashlib

PREFIX = "estiba:v1:"

PROFILES = PREFIX + "profiles"
"""Hash: profile key -> ModelProfile."""
INSTANCES = PREFIX + "instances"
"""Hash: instance id -> InstanceStatus."""
DEPLOYMENTS = PREFIX + "deployments"
"""Hash: namespace/name -> Deployment."""
NODES = PREFIX + "nodes"
"""Set of node names; each Node is a string of its own (below) that ends with the heartbeat's time to live."""
DEMAND = PREFIX + "demand"
"""Set of "source|namespace/name"; each Demand is a string of its own (below) with a time to live."""
DECISIONS = PREFIX + "decisions"
"""Stream of Decision, trimmed."""
QUARANTINE = PREFIX + "quarantine"
"""Hash: where it was -> {"why", "document"}: what could not be read. Bounded."""
KICKS = PREFIX + "kicks"
"""Channel: somebody wants the next pass now."""


def document(index: str, name: str) -> str:
    """The string that holds `name` of the set `index`."""
    return f"{index}:{name}"


def decisions_of(deployment: str) -> str:
    """The stream of one deployment's decisions, so that its last ones are found without reading all."""
    return f"{DECISIONS}:{hashlib.sha256(deployment.encode()).hexdigest()[:16]}"


def demand_name(source: str, deployment: str) -> str:
    return f"{source}|{deployment}"
