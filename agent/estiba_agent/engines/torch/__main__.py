"""`python -m estiba_agent.engines.torch LAUNCH.json`: run one engine until it is stopped."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from pydantic import ValidationError

from ..wire import EngineLaunch

log = logging.getLogger(__name__)

LOG_BYTES = 2 * 1024 * 1024
FAILED = 1
BAD_LAUNCH = 2


def main(arguments: list[str]) -> int:
    """Exit codes: 0 stopped, 1 failed (the log's last line says why), 2 the launch file can't be used."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m estiba_agent.engines.torch LAUNCH.json\n")
        return BAD_LAUNCH
    try:
        launch = EngineLaunch.model_validate_json(Path(arguments[0]).read_bytes())
    except (OSError, ValidationError) as error:
        sys.stderr.write(f"failed: Invalid: the launch file {arguments[0]} can't be used: {error}\n")
        return BAD_LAUNCH
    _log_to(launch.log_file)
    _settle_environment(launch.compute_threads)
    with launch.log_file.open("a") as crash_log:  # a crash in native code is told where everything else is
        faulthandler.enable(crash_log)
        try:
            return asyncio.run(_serve(launch))
        except Exception as error:
            log.exception("the engine broke")
            log.error("failed: Internal: %s: %s", type(error).__name__, error)
            return FAILED
        finally:
            faulthandler.disable()


async def _serve(launch: EngineLaunch) -> int:
    from .server import EngineProcess

    try:
        process = EngineProcess(launch)
    except (OSError, ValueError) as error:
        log.error("failed: Invalid: the engine's sockets can't be opened: %s", error)
        return BAD_LAUNCH
    return await process.run()


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for noisy in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _settle_environment(threads: int) -> None:
    """Before torch is imported: its threads, and no look-ups on the network behind the user's back."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    # a thread that is still in native code (a load that was told to stop) must not hold up the end
    os._exit(code)
