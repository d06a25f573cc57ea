"""Name the lasting reason for a failed TLS connection: the side that rejects the other's certificate, and why."""

from __future__ import annotations

import ssl

from redismem.protocol.server_errors import ConnectionLost

SILENCE = "HandshakeTimeout"
"""The reason if the server did not answer the TLS handshake in time."""
# Parts of OpenSSL's alert names that reject a client's certificate, or the lack of one.
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "PROTOCOL_VERSION")


def lasting_failure(failure: BaseException | None) -> ConnectionLost | None:
    """Return the lasting reason for a connection that TLS has ended; `None` if a retry may succeed."""
    if not isinstance(failure, ssl.SSLError):
        return None
    name = type(failure).__name__
    if isinstance(failure, ssl.SSLCertVerificationError):
        text = f"the server certificate is not valid: {failure.verify_message}"
        return ConnectionLost(name, sent=False, text=text, lasts=True)
    alert = failure.reason or ""
    if "ALERT" not in alert or not any(word in alert for word in _ALERTS):
        return None
    words = alert.lower().replace("_", " ")
    text = f"it rejects this client: {words}; the URL options ssl_certfile and ssl_keyfile identify the client"
    return ConnectionLost(name, sent=False, text=text, lasts=True)
