"""Why TLS brings no connection about, if that lasts: which side does not trust the other, and what it says of it."""

from __future__ import annotations

import socket
import ssl

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.url import Address

SILENCE = "HandshakeTimeout"
"""Why a connection did not come about to a server that has not said a word of TLS in time."""
_HEARD_S = 0.5
# What servers say of the other side's certificate, or of none, in OpenSSL's words: each with some more before it.
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "PROTOCOL_VERSION")
_ENDED = (ConnectionLost, EOFError, ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


def why(address: Address, failure: BaseException, timeout_s: float) -> ConnectionLost | None:
    """What lasts behind the failure of a connection that nothing has been answered on. None: nothing is known of it.

    It may dial once more, and blocks: for half a second at most a step of that.
    """
    if address.tls is None or not isinstance(failure, _ENDED):
        return None
    if isinstance(failure, ssl.SSLError) and (known := _read(failure)) is not None:
        return known
    return _heard(address, address.tls, min(_HEARD_S, timeout_s))


def _read(failure: ssl.SSLError) -> ConnectionLost | None:
    name = type(failure).__name__
    if isinstance(failure, ssl.SSLCertVerificationError):
        text = f"the certificate does not hold: {failure.verify_message}"
        return ConnectionLost(name, sent=False, text=text, lasts=True)
    alert = failure.reason or ""
    if "ALERT" not in alert or not any(word in alert for word in _ALERTS):
        return None
    words = alert.lower().replace("_", " ")
    text = f"it does not let this client in: {words}; the client is known by the URL's ssl_certfile and ssl_keyfile"
    return ConnectionLost(name, sent=False, text=text, lasts=True)


def _heard(address: Address, context: ssl.SSLContext, timeout_s: float) -> ConnectionLost | None:
    """What the server says of this client when the client says nothing.

    In TLS 1.3 the handshake is over for the client before the server has looked at its certificate. Whoever writes then
    is reset, and the reset may overtake the alert.
    """
    if timeout_s <= 0:
        return None
    try:
        with (
            socket.create_connection((address.host, address.port), timeout_s) as dialled,
            context.wrap_socket(dialled, server_hostname=address.host) as secured,
        ):
            secured.recv(1)
    except ssl.SSLError as refused:
        return _read(refused)
    except (OSError, UnicodeError):
        pass
    return None
