"""Number formats that weights come in and are served in."""

from __future__ import annotations

BYTES_PER_VALUE = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The formats a model can be served in."""

OF_SAFETENSORS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
"""Formats of weights that can be read. Everything else is quantised weights or no weights."""

TO_SAFETENSORS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
