"""The embedded engine: PyTorch, continuous batching, weights streamed over the host link. Importing this is quick."""

from importlib.metadata import version

from ..wire import EngineCapabilities

ENGINE = "torch"

CAPABILITIES = EngineCapabilities(
    engine=ENGINE,
    sleep_levels=(1, 2),
    resize_while_serving=True,
    offload_mechanism="stream",
    keeps_kv_asleep=False,  # it sleeps when nothing runs, so that there is none,
)


def engine_version() -> str:
    """What a profile of this engine is keyed by: `<estiba>+torch<torch>`. Reads package metadata, imports nothing."""
    return f"{version('estiba')}+torch{version('torch').partition('+')[0]}"


__all__ = ["CAPABILITIES", "ENGINE", "engine_version"]
