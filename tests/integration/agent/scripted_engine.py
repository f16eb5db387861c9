"""A process that speaks the engine's two faces and does what its script says: `scripted_engine.py LAUNCH.json`.

It stands in for the torch engine where that can't be scripted: hanging, refusing, dying at a given moment. The script
is `script.json` beside the launch file, read anew at every call:

    {"load": false}              stay Loading
    {"deaf": true}               answer no control call
    {"refuse": {"wake": "Reason"}}
    {"hold": ["drain"]}          answer these calls only when they are no longer held
    {"ignore_stop": true}        end by SIGTERM only
    {"stubborn": true}           ignore stop and SIGTERM
    {"die": "last words"}        write them and exit with 1
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from estiba_agent.process_start import started_at_s

LAUNCH_FILE = Path(sys.argv[1])
LAUNCH = json.loads(LAUNCH_FILE.read_text())
SCRIPT_FILE = LAUNCH_FILE.with_name("script.json")
BOOT_ID = uuid.uuid4().hex
STARTED_AT = started_at_s(os.getpid())
WEIGHT_BYTES = 1000


class Engine:
    phase = "Loading"
    generation = LAUNCH["generation"]
    resident_bytes = LAUNCH["resident_bytes"]
    kv_bytes = LAUNCH["kv_bytes"]
    url = ""
    drain_cancelled = False


def script() -> dict[str, Any]:
    """Empty while it is being written."""
    try:
        return dict(json.loads(SCRIPT_FILE.read_text()))
    except (OSError, ValueError):
        return {}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def state() -> dict[str, Any]:
    asleep = Engine.phase.startswith("Asleep")
    resident = 0 if asleep else Engine.resident_bytes
    return {
        "phase": Engine.phase,
        "generation": Engine.generation,
        "url": Engine.url,
        "resident_bytes": resident,
        "resident_fraction": min(1.0, resident / WEIGHT_BYTES),
        "device_bytes": resident,
        "kv_bytes": 0 if asleep else Engine.kv_bytes,
    }


def identity() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "started_at": STARTED_AT,
        "boot_id": BOOT_ID,
        "instance": LAUNCH["instance"],
        "served_name": LAUNCH["served_name"],
        "model_digest": "scripted",
        "engine": "scripted",
        "engine_version": "1",
        "generation": Engine.generation,
    }


class Control(BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        if script().get("deaf"):
            time.sleep(60)
        self.answer(200, identity() if self.path == "/v1/identity" else state())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        call = self.path.removeprefix("/v1/")
        say(f"call {call}")
        while call in script().get("hold", ()):
            if call == "drain" and Engine.drain_cancelled:
                self.refuse("DrainCancelled")
                return
            time.sleep(0.01)
        if (reason := script().get("refuse", {}).get(call)) is not None:
            self.refuse(reason)
            return
        Engine.generation = max(Engine.generation, body.get("generation", 0))
        if call == "stop":
            self.answer(202, {"stopping": True})
            if not script().get("ignore_stop"):
                end("stopped")
            return
        if call in ("wake", "residency"):
            Engine.resident_bytes, Engine.kv_bytes = body["resident_bytes"], body["kv_bytes"]
        if call == "resume":
            Engine.drain_cancelled = True
        phase = {"drain": "Drained", "resume": "Ready", "wake": "Ready", "sleep": f"Asleep{body.get('level')}"}
        Engine.phase = phase.get(call, Engine.phase)
        self.answer(200, state())

    def refuse(self, reason: str) -> None:
        self.answer(409, {"error": {"reason": reason, "message": "as scripted"}})

    def answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("x-estiba-boot-id", BOOT_ID)
        self.send_header("x-estiba-pid", str(os.getpid()))
        self.send_header("x-estiba-engine", LAUNCH["instance"])
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class OpenAI(Control):
    def do_GET(self) -> None:
        self.answer(200, {"data": [{"id": LAUNCH["served_name"]}]})


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def end(last_words: str) -> None:
    if not script().get("stubborn"):
        say(last_words)
        os._exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: end("stopped by SIGTERM"))
    openai = ThreadingHTTPServer(("127.0.0.1", 0), OpenAI)
    Engine.url = f"http://127.0.0.1:{openai.server_address[1]}"
    socket = Path(LAUNCH["control_socket"])
    socket.unlink(missing_ok=True)
    control = UnixServer(str(socket), Control)
    for server in (openai, control):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    say("scripted engine started")
    while True:
        now = script()
        if "die" in now:
            say(now["die"])
            os._exit(1)
        if Engine.phase == "Loading" and now.get("load", True):
            Engine.phase = "Ready"
        time.sleep(0.02)


if __name__ == "__main__":
    main()
