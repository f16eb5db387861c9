"""The CustomResourceDefinitions, made from the types in `estiba_operator.api`."""

from .definitions import custom_resource_definitions
from .structural import NotStructural, structural

__all__ = ["NotStructural", "custom_resource_definitions", "structural"]
