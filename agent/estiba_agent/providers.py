"""From the device requests of the configuration to the providers that read the devices."""

from __future__ import annotations

from estiba_agent.devices import CpuProvider, DeviceProvider, NvmlProvider, parse_device

from .config import AgentConfig

KINDS = ("cpu", "nvml")


def providers_for(config: AgentConfig) -> list[DeviceProvider]:
    """Raises ValueError for a request that can't be understood, with the fix."""
    requests = [parse_device(text) for text in config.devices]
    unknown = [text for text, request in zip(config.devices, requests, strict=True) if request.kind not in KINDS]
    if unknown:
        raise ValueError(f"devices of this kind are not known: {unknown[0]}; write one of {', '.join(KINDS)}")
    cpus = [request for request in requests if request.kind == "cpu"]
    providers: list[DeviceProvider] = []
    if cpus:
        providers.append(CpuProvider(config.node, cpus, config.state_dir))
    if any(request.kind == "nvml" for request in requests):
        providers.append(NvmlProvider(config.node))
    return providers
