"""A server with an invalid certificate: the error comes at once and says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.redis_server import TlsServer

from redismem import Memory, Settings, StoreUnavailable
from redismem.blocking import memory as blocking

# A call that is retried until then would make the test hang.
PATIENT = Settings(deadline_s=120, reply_timeout_s=60)


def url_of(server: TlsServer, certificates: Path, host: str, **options: Any) -> str:
    given = {"ssl_certfile": certificates / "node.crt", "ssl_keyfile": certificates / "node.key", **options}
    return f"rediss://{host}:{server.tls_port}/0?" + "&".join(f"{name}={value}" for name, value in given.items())


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_unknown_authority_is_named(tls_server: TlsServer, certificates: Path, is_async: bool) -> None:
    url = url_of(tls_server, certificates, "127.0.0.1")
    if is_async:
        memory = Memory.connect(url, settings=PATIENT)
        with pytest.raises(StoreUnavailable) as refused:
            await memory.ping()
        await memory.aclose()
    else:
        with pytest.raises(StoreUnavailable) as refused, blocking.Memory.connect(url, settings=PATIENT):
            pass
    assert refused.value.reason == "SSLCertVerificationError"
    assert f"Redis at 127.0.0.1:{tls_server.tls_port} cannot be called" in refused.value.text
    assert "the server certificate is not valid: self-signed certificate" in refused.value.text
