"""What the documents promise exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from estiba_scheduler.domain import Reason

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def test_every_reason_is_documented() -> None:
    page = (ROOT / "docs/reference/reasons.md").read_text()
    assert [r.value for r in Reason if f"`{r.value}`" not in page] == []


@pytest.mark.parametrize(
    "page", [p.relative_to(ROOT) for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))], ids=str
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text()
    missing = [m.group(1) for m in LINK.finditer(text) if not (ROOT / page).parent.joinpath(m.group(1)).exists()]
    assert missing == []
