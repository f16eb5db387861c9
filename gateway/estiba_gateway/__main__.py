"""`python -m estiba_gateway CONFIG.json`: run a gateway until it is told to end (SIGTERM, SIGINT)."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from .config import GatewayConfig

log = logging.getLogger("estiba_gateway")

FAILED = 1
BAD_CONFIG = 2
IN_USE = 3


def main(arguments: list[str]) -> int:
    """Exit codes: 0 ended as told, 1 broke, 2 the configuration can't be used, 3 another gateway has the directory."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m estiba_gateway CONFIG.json\n")
        return BAD_CONFIG
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("uvicorn", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        config = GatewayConfig.model_validate_json(Path(arguments[0]).read_bytes())
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(config.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValidationError) as error:
        log.error("the configuration %s can't be used: %s", arguments[0], error)
        return BAD_CONFIG
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        log.error("another gateway runs on %s; end it first, or use another state directory", config.state_dir)
        return IN_USE
    try:
        return asyncio.run(_run(config))
    finally:
        os.close(lock)


async def _run(config: GatewayConfig) -> int:
    from .gateway import Gateway

    try:
        gateway = Gateway(config)
    except ValueError as error:
        log.error("the configuration can't be used: %s", error)
        return BAD_CONFIG
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, gateway.end)
    try:
        await gateway.run()
    except OSError as error:
        log.error("%s", error)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
