"""ModelDeployments from YAML: files, folders and standard input. Everything that is wrong is said at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node

from .complaints import problems_of
from .model_deployment import API_VERSION, KIND, ModelDeployment

LARGEST_BYTES = 1024 * 1024
MOST_DOCUMENTS = 256
MOST_ALIASES = 64
"""Far more than anybody writes, far fewer than a document needs that grows without end."""
DEEPEST = 32


class BadDocuments(Exception):
    """`problems`: a sentence each, with file, document, path and fix."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_documents(path: Path) -> list[ModelDeployment]:
    """All ModelDeployments of a file, of a folder's YAML files, or (`-`) of standard input. Raises BadDocuments."""
    problems: list[str] = []
    read: list[ModelDeployment] = []
    seen: dict[str, str] = {}
    for name, text in _texts(path, problems):
        for where, item in _documents(name, text, problems):
            deployment = _deployment(where, item, problems)
            if deployment is None:
                continue
            if deployment.id in seen:
                problems.append(f"{where}: {deployment.id} is given in {seen[deployment.id]} already; remove one")
            seen.setdefault(deployment.id, where)
            read.append(deployment)
    if not problems and not read:
        problems.append(f"{path}: there is no {KIND} in it; examples/three-models.yaml shows how one is written")
    if problems:
        raise BadDocuments(problems)
    return read


def _texts(path: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    if str(path) == "-":
        text = sys.stdin.read(LARGEST_BYTES + 1)
        if len(text) > LARGEST_BYTES:
            problems.append(f"standard input: more than {LARGEST_BYTES} characters; split it")
        else:
            yield "standard input", text
        return
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    if not files:
        problems.append(f"{path}: the folder has no .yaml file")
    for file in files:
        try:
            if file.stat().st_size > LARGEST_BYTES:
                problems.append(f"{file}: larger than {LARGEST_BYTES} bytes; split it")
                continue
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            problems.append(f"{file}: can't be read: {what}; check the path")


def _documents(name: str, text: str, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Each document with its place, `List`s taken apart."""
    try:
        if (problem := _grows_without_end(text)) is not None:
            problems.append(f"{name}: {problem}")
            return
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        _refuse_double_keys(name, nodes, problems)
        items = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problems.append(f"{name}: {at}this is not YAML: {getattr(error, 'problem', None) or error}")
        return
    except (RecursionError, ValueError) as error:
        problems.append(f"{name}: this YAML can't be read: {type(error).__name__}: {error}")
        return
    lines = [node.start_mark.line + 1 if node is not None else 1 for node in nodes]
    flat = 0
    for number, (item, line) in enumerate(zip(items, lines, strict=True), start=1):
        if item is None:
            continue
        is_list = isinstance(item, dict) and item.get("kind") == "List" and isinstance(item.get("items"), list)
        for inner in item["items"] if is_list else [item]:
            flat += 1
            if flat > MOST_DOCUMENTS:
                problems.append(f"{name}: more than {MOST_DOCUMENTS} documents; split it")
                return
            yield f"{name}: document {number} (line {line})", inner


def _grows_without_end(text: str) -> str | None:
    """Read piece by piece, so that it ends at the first piece too much. Raises yaml.YAMLError."""
    aliases = depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        aliases += isinstance(event, AliasEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if aliases > MOST_ALIASES:
            return f"more than {MOST_ALIASES} YAML aliases; write them out"
        if depth > DEEPEST:
            return f"nested more than {DEEPEST} levels deep; a {KIND} has no more than 5"
    return None


def _deployment(where: str, item: Any, problems: list[str]) -> ModelDeployment | None:
    if not isinstance(item, dict):
        problems.append(f"{where}: a {KIND} is a mapping with apiVersion, kind, metadata and spec; this is not one")
        return None
    if item.get("kind") != KIND or item.get("apiVersion") != API_VERSION:
        problems.append(
            f"{where}: is {str(item.get('apiVersion'))[:80]} {str(item.get('kind'))[:80]}; "
            f"write apiVersion: {API_VERSION} and kind: {KIND}"
        )
        return None
    try:
        return ModelDeployment.model_validate(item)
    except ValidationError as error:
        metadata = item.get("metadata")
        name = str(metadata.get("name", ""))[:60] if isinstance(metadata, dict) else ""
        problems += [f"{where}{f' {name}' if name else ''}: {problem}" for problem in problems_of(error)]
        return None


def _refuse_double_keys(name: str, nodes: Sequence[Node | None], problems: list[str]) -> None:
    """YAML takes the last of two equal keys without a word; nobody means that."""
    todo: list[Node] = [node for node in nodes if node is not None]
    done: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in done:
            continue
        done.add(id(node))
        if isinstance(node, MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key.value, str)]
            for double in sorted({key for key in keys if keys.count(key) > 1}):
                problems.append(f"{name}: line {node.start_mark.line + 1}: {double!r} is given twice; remove one")
            todo += [value for _, value in node.value]
        elif isinstance(node.value, list):
            todo += node.value
