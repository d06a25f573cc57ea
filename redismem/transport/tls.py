"""Find the lasting reason for a failed TLS connection: the side that rejects the other's certificate, and why."""

from __future__ import annotations

import socket
import ssl

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.url import Address

SILENCE = "HandshakeTimeout"
"""The reason if the server did not answer the TLS handshake in time."""
_HEARD_S = 0.5
# Parts of OpenSSL's alert names that reject a client's certificate, or the lack of one.
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "PROTOCOL_VERSION")
_ENDED = (ConnectionLost, EOFError, ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


def find_lasting_failure(address: Address, failure: BaseException, timeout_s: float) -> ConnectionLost | None:
    """Return the lasting reason for the failure of a new connection; `None` if a retry may succeed.

    The function may connect to the server once more. It blocks, for at most half a second per step.
    """
    if address.tls is None or not isinstance(failure, _ENDED):
        return None
    if isinstance(failure, ssl.SSLError) and (lasting := _read_alert(failure)) is not None:
        return lasting
    return _read_late_alert(address, address.tls, min(_HEARD_S, timeout_s))


def _read_alert(failure: ssl.SSLError) -> ConnectionLost | None:
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


def _read_late_alert(address: Address, context: ssl.SSLContext, timeout_s: float) -> ConnectionLost | None:
    """Connect without writing anything, and return the alert that the server sends.

    In TLS 1.3 the client finishes its handshake before the server has checked the client's certificate. If the client
    writes at that moment, its connection is reset, and the reset may overtake the alert.
    """
    if timeout_s <= 0:
        return None
    try:
        with (
            socket.create_connection((address.host, address.port), timeout_s) as connection,
            context.wrap_socket(connection, server_hostname=address.host) as secured,
        ):
            secured.recv(1)
    except ssl.SSLError as refused:
        return _read_alert(refused)
    except (OSError, UnicodeError):
        pass
    return None
