"""The types of `estiba.dev/v1alpha1`, and how they are read from YAML."""

from .complaints import problems_of
from .documents import BadDocuments, load_documents
from .model_deployment import API_VERSION, KIND, ModelDeployment

__all__ = ["API_VERSION", "KIND", "BadDocuments", "ModelDeployment", "load_documents", "problems_of"]
