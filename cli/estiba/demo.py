"""`make demo`: real models share a device that can't hold them all. Every step is checked; a step that is not as said
ends it with status 1.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from .exits import CommandError
from .story import Story
from .up_process import UpProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "three-models.yaml"
DEVICE = "cpu:memory=700MiB,link=2GiB/s"
HOLD_S = "120"


async def play() -> None:
    """Raises CommandError at the first step that is not as said. Whatever happens, nothing is left behind."""
    state = Path(tempfile.mkdtemp(prefix="estiba-demo-"))
    arguments = ["--device", DEVICE, "-f", str(EXAMPLES), "--port", "0", "--hold", HOLD_S]
    up = UpProcess(state, [*arguments, "--profile-cache", str(state / "cache")])
    try:
        await Story(up, EXAMPLES, DEVICE).tell()
    except BaseException:
        sys.stderr.write(f"--- the last lines of estiba up ---\n{up.last_words(40)}\n")
        raise
    finally:
        up.kill_all()
        shutil.rmtree(state, ignore_errors=True)


async def _until_interrupted() -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await play()


def main() -> int:
    try:
        asyncio.run(_until_interrupted())
    except CommandError as error:
        sys.stderr.write(f"demo: not as said: {error}\n")
        return 1
    except asyncio.CancelledError:
        sys.stderr.write("demo: interrupted; everything is stopped\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
