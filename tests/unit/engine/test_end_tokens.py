"""An answer ends at whatever token the model's files or its vocabulary call an end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from estiba_agent.engines.torch.end_tokens import end_tokens

from .scripted_runtime import ScriptedRuntime


@pytest.fixture
def runtime() -> ScriptedRuntime:
    made = ScriptedRuntime()
    made.tokenizer.eos_token_id = None
    return made


def test_a_random_model_may_have_none(runtime: ScriptedRuntime) -> None:
    assert end_tokens(runtime) == frozenset()


def test_generation_config_config_and_tokenizer_all_count(runtime: ScriptedRuntime) -> None:
    runtime.generation_config = SimpleNamespace(eos_token_id=[1, 2])
    runtime.config.eos_token_id = 3
    runtime.tokenizer.eos_token_id = 4
    assert end_tokens(runtime) == {1, 2, 3, 4}


def test_a_token_named_as_the_end_of_a_turn_counts_where_no_file_says_so(runtime: ScriptedRuntime) -> None:
    runtime.tokenizer.added_tokens_decoder = {7: "<|im_end|>", 8: "<|im_start|>"}
    assert end_tokens(runtime) == {7}
