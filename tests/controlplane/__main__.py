"""`make controlplane`: an API server to play with, until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from .control_plane import ControlPlane


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plane = ControlPlane()
    try:
        plane.start()
        sys.stdout.write(f"ready: export KUBECONFIG={plane.kubeconfig}\n")
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        plane.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
