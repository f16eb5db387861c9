"""From a model's URI to a folder that the engine can load."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .bad_model import BadModel
from .cache import Progress
from .checkpoint import Checkpoint
from .digest import folder_digest
from .gguf import converted
from .package_data import packaged_file
from .random_model import RandomModel, random_folder, write_random
from .resolved import ResolvedModel

IN_DIGEST = (
    "*.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
)


def resolve(uri: str, cache: Path, progress: Progress | None = None) -> ResolvedModel:
    """Find the model, converting or making it in `cache` once where that is needed. Raises BadModel with the fix.

    `file:///folder` (safetensors), `file:///file.gguf`, `package://PACKAGE/FILE`, `random://ARCHITECTURE?...`.
    `progress` is told, in words, what takes long.
    """
    cache = cache.expanduser()
    scheme, separator, _ = uri.partition("://")
    resolver = RESOLVERS.get(scheme) if separator else None
    if resolver is None:
        hint = (
            f"for a local folder write file://{uri}"
            if uri.startswith("/")
            else "write " + ", ".join(f"{known}://..." for known in RESOLVERS)
        )
        raise BadModel(uri, f"models of this kind are not known; {hint}")
    path, digest, name = resolver(uri, cache, progress)
    return ResolvedModel(uri, path, digest, Checkpoint.read(path, uri).architecture, name)


def make_random(uri: str, out_dir: Path, cache: Path, progress: Progress | None = None) -> Path:
    """Write the model of a `random://` URI into a new folder of `out_dir`, with "random" in its name; return it.

    Raises BadModel when the URI is wrong or the folder exists already.
    """
    model = RandomModel.parse(uri)
    source = None if model.tokenizer == "bytes" else resolve(model.tokenizer, cache, progress).path
    folder, part = out_dir / model.name, out_dir / f".{model.name}.part"
    if folder.exists():
        raise BadModel(uri, f"{folder} exists already; remove it or choose another folder")
    shutil.rmtree(part, ignore_errors=True)  # of an earlier try that was broken off
    part.mkdir(parents=True)
    try:
        write_random(model, part, source, progress)
        return part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


Found = tuple[Path, str, str]


def _file(uri: str, cache: Path, progress: Progress | None) -> Found:
    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    if parts.netloc or not path.is_absolute():
        raise BadModel(uri, "write an absolute path with three slashes: file:///path/to/model")
    return _local(path, uri, cache, progress)


def _package(uri: str, cache: Path, progress: Progress | None) -> Found:
    parts = urlsplit(uri)
    name = unquote(parts.path).lstrip("/")
    if not parts.netloc or not name:
        raise BadModel(uri, "write package://PACKAGE/FILE")
    return _local(packaged_file(parts.netloc, name, uri), uri, cache, progress)


def _random(uri: str, cache: Path, progress: Progress | None) -> Found:
    def folder_of(tokenizer: str) -> tuple[Path, str]:
        if tokenizer.startswith("random:"):
            raise BadModel(uri, "tokenizer= must name a model that is not random itself, or bytes")
        model = resolve(tokenizer, cache, progress)
        return model.path, model.digest

    return random_folder(uri, cache, folder_of, progress)


def _local(path: Path, uri: str, cache: Path, progress: Progress | None) -> Found:
    if path.suffix == ".gguf" and path.is_file():
        folder, digest = converted(path, cache, uri, progress)
        return folder, digest, path.stem
    if path.is_dir():
        Checkpoint.read(path, uri)  # say what is wrong before half a minute of hashing
        files = {file for pattern in IN_DIGEST for file in path.glob(pattern) if file.is_file()}
        return path, folder_digest(files, cache, uri), path.name
    if path.exists():
        raise BadModel(uri, f"{path} is neither a model folder nor a .gguf file")
    raise BadModel(uri, f"{path} does not exist; check the path")


RESOLVERS: dict[str, Callable[[str, Path, Progress | None], Found]] = {
    "file": _file,
    "package": _package,
    "random": _random,
}
