"""Names of objects, as Kubernetes has them; what else a server adds is tolerated."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from .resource import Part

Text = Annotated[str, StringConstraints(max_length=253)]


class ObjectMetadata(Part):
    """As in every Kubernetes object."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(description="Name of the object.")
    namespace: str = Field(default="default", description="Namespace of the object.")
    labels: dict[Text, Text] = Field(default_factory=dict, description="Labels, for people and selectors.")
    annotations: dict[Text, str] = Field(default_factory=dict, description="Annotations, for tools.")
    generation: int = Field(default=1, ge=1, description="Counts changes of the spec; set by the server.")
