"""Certificates of the tests' own, as OpenSSL's command makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path) -> None:
    """ca.crt with ca.key; and signed by it node.crt, for 127.0.0.1 and localhost, and pod.crt, which names no host."""
    # Newer Pythons refuse certificates that do not say what they are for and who signed them.
    usage = ("-subj", "/CN=test CA", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(folder, "req", "-x509", *_NEW, "-keyout", "ca.key", "-out", "ca.crt", *usage, "-days", "2")
    _sign(folder, "node", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
    _sign(folder, "pod", "extendedKeyUsage=clientAuth\n")


def _sign(folder: Path, name: str, says: str) -> None:
    _openssl(folder, "req", *_NEW, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / "says").write_text(f"{says}authorityKeyIdentifier=keyid\n")
    signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "says", "-days", "2")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed_by, "-out", f"{name}.crt")
