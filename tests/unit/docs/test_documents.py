"""What the documents promise exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from estiba_operator.api import ModelDeployment
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


def test_every_field_of_a_model_deployment_is_documented_with_its_default() -> None:
    page = (ROOT / "docs/reference/modeldeployment.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    fields = dict(fields_of(ModelDeployment, ""))
    undocumented = [path for path in fields if path not in rows]
    unknown = [path for path in rows if path not in fields and path.split(":")[0] not in ("file", "package", "random")]
    assert (undocumented, unknown) == ([], [])
    for path, (default, description) in fields.items():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", rows[path])[1:-1]]
        assert cells[2:] == [default, description], path


def fields_of(kind: type[BaseModel], path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Path, default and description of each, as the page shows them."""
    for field in kind.model_fields.values():
        here = f"{path}.{field.alias}".removeprefix(".")
        options = [field.annotation, *get_args(field.annotation)]
        inner = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
        if inner is not None:
            yield from fields_of(inner, here)
            continue
        default = field.get_default(call_default_factory=True)
        if field.is_required():
            shown = "required"
        elif default is None or default in ((), {}):
            shown = "–"
        else:
            value = default.value if isinstance(default, Enum) else default
            shown = f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
        yield here, (shown, str(field.description))
