"""Certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path) -> None:
    """Write ca.crt, and node.crt and pod.crt signed by it, with their keys.

    node.crt is for 127.0.0.1 and localhost; pod.crt names no host.
    """
    # Newer Pythons refuse certificates without usage and authority.
    usage = ("-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(folder, "req", "-x509", *_NEW, "-keyout", "ca.key", "-out", "ca.crt", *usage, "-days", "2")
    _sign(folder, "node", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
    _sign(folder, "pod", "extendedKeyUsage=clientAuth\n")


def _sign(folder: Path, name: str, says: str) -> None:
    _openssl(folder, "req", *_NEW, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "says").write_text(f"{says}authorityKeyIdentifier=keyid\n")
    signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "says", "-days", "2")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed_by, "-out", f"{name}.crt")
