"""Errors of one exchange with a server: an error reply, or no reply. Users of the library never see them."""

from __future__ import annotations


class ServerError(Exception):
    """An error reply. `word` is its first word (`NOSCRIPT`, `OOM`, …), `text` the whole reply, without arguments."""

    def __init__(self, word: str, text: str) -> None:
        super().__init__(text)
        self.word = word
        self.text = text


class ConnectionLost(Exception):
    """No reply came: the connection was refused or reset, or timed out.

    Unless `sent` is False, the server may have run the call.

    `text` adds details to the reason. `lasts` means that a retry is useless. `crowded` means that the server was
    answering other calls of this process. `place` is the host and port of the node, if there are several nodes.
    """

    def __init__(
        self, reason: str, *, sent: bool = True, text: str = "", lasts: bool = False, crowded: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent
        self.text = text
        self.lasts = lasts
        self.crowded = crowded
        self.place = ""


# The server did not run the call, and the error is likely to pass: the call is retried until its deadline.
TRANSIENT_WORDS = frozenset(
    ["NOSCRIPT", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "NOREPLICAS"]
)
# The transient words of a server that accepts no calls at all for now.
NOT_READY_WORDS = frozenset(["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN"])
# The server did not run the call, and only an operator can fix the cause: a retry would only delay the chat.
LASTING_WORDS = frozenset(["OOM", "MISCONF", "CROSSSLOT", "NOAUTH", "WRONGPASS", "EXECABORT", "NOPROTO"])
