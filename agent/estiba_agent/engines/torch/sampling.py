"""Picking the next token from a row of logits."""

from __future__ import annotations

from collections import Counter

import torch

from .request import SamplingParams


class Sampler:
    """Picks the tokens of one request. With a seed, the same logits give the same tokens, whatever else runs."""

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._counts: Counter[int] = Counter()
        self._generator: torch.Generator | None = None
        if params.temperature > 0:
            self._generator = torch.Generator()
            if params.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(params.seed)

    def pick(self, logits: torch.Tensor) -> int:
        """The next token id for `logits` [vocab], float32; remembers it for the penalties."""
        logits = self._adjusted(logits)
        token = int(logits.argmax()) if self._generator is None else self._draw(logits)
        if self._penalises:
            self._counts[token] += 1
        return token

    @property
    def _penalises(self) -> bool:
        return bool(self._params.presence_penalty or self._params.frequency_penalty)

    def _adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        """Penalties on tokens of the answer so far (as OpenAI defines them) and the caller's bias."""
        params = self._params
        if not (self._counts or params.logit_bias):
            return logits
        logits = logits.clone()
        if self._counts:
            ids = torch.tensor(list(self._counts))
            counts = torch.tensor(list(self._counts.values()), dtype=logits.dtype)
            logits[ids] -= params.presence_penalty + params.frequency_penalty * counts
        for token, bias in params.logit_bias:
            logits[token] += bias
        return logits

    def _draw(self, logits: torch.Tensor) -> int:
        params = self._params
        logits = logits.to("cpu", torch.float32) / max(params.temperature, 1e-5)
        ids: torch.Tensor | None = None
        if 0 < params.top_k < logits.numel():
            logits, ids = logits.topk(params.top_k)
        probabilities = logits.softmax(-1)
        if params.top_p < 1:
            probabilities, order = probabilities.sort(descending=True)
            ids = order if ids is None else ids[order]
            before = probabilities.cumsum(-1) - probabilities
            probabilities = probabilities.masked_fill(before >= max(params.top_p, 1e-9), 0)
        at = int(torch.multinomial(probabilities, 1, generator=self._generator))
        return at if ids is None else int(ids[at])
