"""An API server with its etcd, for tests: started on free loopback ports, stopped by who started it.

By default it is a test server built on upstream's `k8s.io/apiserver` and `k8s.io/apiextensions-apiserver`, and not
kube-apiserver: `README.md` says what it proves and what it doesn't.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

from .binaries import Binaries, find

READY_S = 60.0
END_S = 20.0
TOKEN = "a-token-for-tests"
POLL_S = 0.1


class ControlPlane:
    """`kubeconfig` is a file for kubectl and the client, with an administrator in it."""

    def __init__(self, folder: Path | None = None, binaries: Binaries | None = None) -> None:
        self._folder = folder or Path(tempfile.mkdtemp(prefix="estiba-api-"))
        self._binaries = binaries
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "kubeconfig"

    def start(self) -> ControlPlane:
        """Returns when it is ready. Raises NoControlPlane, or RuntimeError with its last words."""
        binaries = self._binaries or find()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._certificates()
        etcd_port, peer_port, self._port = _free_ports(3)
        (self._folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig()))
        self._run(
            "etcd",
            [
                str(binaries.etcd),
                f"--data-dir={self._folder / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                "--unsafe-no-fsync",
                "--log-level=error",
            ],
        )
        self._run("api", [str(binaries.api_server), *self._flags(etcd_port, binaries.upstream)])
        self._until_ready()
        return self

    def stop(self) -> None:
        """Returns when both are gone, and so is what they wrote."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- inner ------------------------------------------------------------------------------------------------------

    def _flags(self, etcd_port: int, upstream: bool) -> list[str]:
        flags = [
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._folder / 'server.crt'}",
            f"--tls-private-key-file={self._folder / 'server.key'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
        ]
        if upstream:
            flags += [
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={self._folder / 'account.key'}",
                f"--service-account-signing-key-file={self._folder / 'account.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
            ]
        return flags

    def _run(self, name: str, command: list[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as said:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self._folder)
            )

    def _until_ready(self) -> None:
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args[0]} ended with {process.returncode}: {self._last_words()}")
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(request, context=context, timeout=5).status == 200:
                    return
            time.sleep(POLL_S)
        raise RuntimeError(f"the API server is not ready after {READY_S:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = []
        for name in ("etcd", "api"):
            with contextlib.suppress(OSError):
                lines += (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()[-5:]
        return "\n".join(lines)

    def _certificates(self) -> None:
        """A certificate authority and a server certificate, good for a day."""
        (self._folder / "san").write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc\nextendedKeyUsage=serverAuth\n"
        )
        for line in (
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 1 -subj /CN=estiba-tests",
            "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 1 -extfile san",
            "genrsa -out account.key 2048",
        ):
            command = ["openssl", *line.split()]
            done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"openssl {line.split()[0]}: {done.stderr.strip()[-300:]}")

    def _kubeconfig(self) -> dict[str, object]:
        cluster = {"server": self.url, "certificate-authority": str(self._folder / "ca.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin", "namespace": "default"}}],
            "current-context": "tests",
        }


def _free_ports(count: int) -> list[int]:
    """All different: they are held together before they are given."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def given_kubeconfig() -> Path | None:
    """Of a cluster that the user lends to the tests."""
    named = os.environ.get("ESTIBA_TEST_KUBECONFIG")
    return Path(named) if named else None
