"""What serves on a device, with its present decode time, as the steps that change residency see it."""

from __future__ import annotations

from ..domain import Device, Instance, Reason
from .allotment import Allotment, Appraiser, Item, appraiser, item_for
from .cluster import serving
from .draft import Draft
from .wording import size, span


class Running:
    """A serving instance with its item and its present state."""

    def __init__(self, instance: Instance, item: Item, appraise: Appraiser) -> None:
        assert instance.status is not None
        self.instance = instance
        self.item = item
        self.tpot_s = appraise.tpot_s(instance.status.resident_bytes)
        self.loss = appraise.loss(self.tpot_s)
        # What all its decoding costs, so that gains can be seen in proportion.
        self.whole = item.worth * item.standing.output_tokens * self.tpot_s


def running_on(draft: Draft, device: Device) -> list[Running]:
    found = []
    rivals = draft.rivals(device)
    for instance in draft.cluster.on(device.uuid):
        standing = draft.standings.get(instance.spec.deployment)
        if standing is None or standing.id in draft.unplannable or not serving(instance) or instance.id in draft.acted:
            continue
        if instance.status is None or instance.status.offload_effective is False:
            continue
        item = item_for(draft.cluster, draft.ledger, standing, device, rivals, instance)
        appraise = appraiser(draft.cluster, standing, device, rivals)
        if item is not None and appraise is not None:
            found.append(Running(instance, item, appraise))
    return found


def shrink(draft: Draft, r: Running, less: Allotment, why: str, beneficiary: str | None) -> None:
    text = (
        f"shrinks from {size(r.instance.spec.budget_bytes)} to {size(less.budget_bytes)}, {why}: "
        f"predicted {span(less.tpot_s)} a token instead of {span(r.tpot_s)}"
    )
    draft.resize(r.instance, less, Reason.SHRUNK, text, beneficiary=beneficiary)
    draft.say(r.item.standing.id, Reason.SHRUNK, text, tpot_s=less.tpot_s)
