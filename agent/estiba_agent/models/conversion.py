"""`python -m estiba_agent.models.conversion FILE.gguf FOLDER`: write a GGUF's plain weights, config and tokenizer."""

from __future__ import annotations

import sys
from pathlib import Path


def convert(file: Path, out: Path) -> None:
    """Read `file` through transformers and write a folder that any loader of safetensors understands."""
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    weights = model.state_dict()
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(model).__name__]
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
