"""Start a real kube-apiserver with its etcd, as envtest does, where the binaries are at hand.

They are looked for in `KUBEBUILDER_ASSETS`, else in `/usr/local/kubebuilder/bin`. Without more no
controllers and no scheduler run, so nothing but the server's own answers shows; `controlled` starts
both, with kubelets that have no containers, from the same folder.
"""

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.servers import fake_kubelet

ADMIN, NOBODY = "admin-token", "nobody-token"
"""Bearer tokens: one of system:masters, one of a user without any grant."""
BACKENDS = ("stand-in", "kube-apiserver")
"""What a contract is held to: the API stub, and a real server, which skips where there is none."""
PLACE = Path("/usr/local/kubebuilder/bin")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
READY_S = 60


@dataclass(frozen=True)
class RealServer:
    """Where it listens, the certificate that vouches for it, and its etcd."""

    url: str
    ca: Path
    etcd: str


def assets() -> Path | None:
    """Return the folder that holds both binaries, or None."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or PLACE)
    both = (folder / "kube-apiserver", folder / "etcd")
    return folder if all(os.access(b, os.X_OK) for b in both) else None


def require() -> Path:
    """Return the folder that holds both binaries, or skip the test."""
    folder = assets()
    if folder is None:
        pytest.skip(absence())
    return folder


def absence() -> str:
    """Say what is missing."""
    folder = os.environ.get("KUBEBUILDER_ASSETS") or PLACE
    return f"no kube-apiserver and etcd in {folder} (KUBEBUILDER_ASSETS)"


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[RealServer]:
    """Run both until the block ends."""
    client_port, peer_port, port = (_free_port() for _ in range(3))
    etcd_url = f"http://127.0.0.1:{client_port}"
    peer_url = f"http://127.0.0.1:{peer_port}"
    etcd = [
        str(folder / "etcd"),
        f"--data-dir={home / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    ]
    certificate, key = _certificate(home)
    tokens = home / "tokens.csv"
    tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n{NOBODY},nobody,2\n')
    api = [
        str(folder / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--cert-dir={home / 'certs'}",
        "--service-account-issuer=https://127.0.0.1/",
        f"--service-account-key-file={certificate}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        # without its cache an etcd compaction shows at once
        "--watch-cache-sizes=configmaps#0",
    ]
    with _running(etcd, home / "etcd.log") as first:
        _await(f"{etcd_url}/health", first, None, home / "etcd.log")
        with _running(api, home / "apiserver.log") as second:
            url = f"https://127.0.0.1:{port}"
            _await(f"{url}/readyz", second, certificate, home / "apiserver.log")
            yield RealServer(url, certificate, etcd_url)


def controllers() -> Path | None:
    """Return the folder that also holds the controller manager and the scheduler, or None."""
    folder = assets()
    if folder is None:
        return None
    return folder if all(os.access(folder / name, os.X_OK) for name in CONTROLLERS) else None


def without_controllers() -> str:
    """Say what is missing."""
    if assets() is None:
        return absence()
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or PLACE)
    missing = [name for name in CONTROLLERS if not os.access(folder / name, os.X_OK)]
    return f"no {' and '.join(missing)} in {folder} (KUBEBUILDER_ASSETS)"


@contextmanager
def controlled(folder: Path, home: Path) -> Iterator[RealServer]:
    """Run a server with its controllers, its scheduler and a kubelet for whatever node is made."""
    with serving(folder, home) as server:
        config = home / "admin.kubeconfig"
        config.write_text(json.dumps(_kubeconfig(server)))
        common = [f"--kubeconfig={config}", "--leader-elect=false", f"--cert-dir={home / 'certs'}"]
        fast = ["--kube-api-qps=1000", "--kube-api-burst=2000", "--bind-address=127.0.0.1"]
        ports = [f"--secure-port={_free_port()}" for _ in CONTROLLERS]
        manager = [
            str(folder / CONTROLLERS[0]),
            *common,
            *fast,
            ports[0],
            # One identity for all of them: RBAC stays on for everybody else.
            "--use-service-account-credentials=false",
            # Nobody renews the heartbeats of nodes that are no machines.
            "--node-monitor-grace-period=24h",
            "--node-startup-grace-period=24h",
        ]
        scheduler = [str(folder / CONTROLLERS[1]), *common, *fast, ports[1]]
        with (
            _running(manager, home / "controllers.log"),
            _running(scheduler, home / "scheduler.log"),
            fake_kubelet.running(server.url, ADMIN, str(server.ca)),
        ):
            yield server


def _kubeconfig(server: RealServer) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server.url, "certificate-authority": str(server.ca)},
            }
        ],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def compact(server: RealServer, revision: int) -> None:
    """Make etcd forget what was before a revision."""
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{server.etcd}/v3/kv/compaction", data=body)
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


@contextmanager
def _running(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(
    url: str, process: "subprocess.Popen[bytes]", certificate: Path | None, log: Path
) -> None:
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {ADMIN}"})
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} is not ready: {log.read_text()[-800:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _certificate(home: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate of 127.0.0.1 and its key."""
    from cryptography import x509  # noqa: PLC0415  (comes with moto)
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = home / "server.crt", home / "server.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
