"""The model of one session in plain Python: its entries, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from redismem.context.results import Receipt, Summary


class SeenSession(NamedTuple):
    """A session as a caller read it, with its newest entry."""

    life: int
    version: int
    first_seq: int
    total: int
    newest: Entry
    committed: str


class Entry(NamedTuple):
    """The content of a seq: a counted message, a pinned message, or a gap."""

    content: str | None
    tokens: int
    kind: str = "counted"
    size: int = 0
    """Its stored size in bytes."""


GAP = Entry(None, 0, "gap")


@dataclass
class SessionModel:
    """A session. `entries` has an entry for every seq ever given."""

    life: int
    active_ms: int = 0
    expires_ms: int = 0
    epoch: str = ""
    owner: str | None = None
    first_seq: int = 1
    entries: list[Entry] = field(default_factory=list)
    version: int = 0
    """The version, which changes with each pop and replacement."""
    written: int = 0
    """The number of the last append, state change, pop or replacement."""
    pinned_once: bool = False
    groups: list[list[int]] = field(default_factory=list)
    """The seqs of pinned messages that left the window together."""
    appends: list[tuple[str, Receipt]] = field(default_factory=list)
    params: dict[str, int] = field(default_factory=dict)
    summaries: list[Summary] = field(default_factory=list)
    unsummarised: set[int] = field(default_factory=set)
    """The seqs that were dropped without a summary."""
    with_originals: bool = False
    left: dict[int, Entry] = field(default_factory=dict)
    """The entries that have left the window, as the originals have them."""
    has_count: bool = False
    """True once the number of summaries was written."""
    sketch: bytes = b""
    """The word sketch of the last commit that covered messages."""
    queued: str | None = None
    holder: int | None = None
    attempts: int | None = None
    failure: tuple[int, int, str] | None = None
    """The times of the first failure since the last commit and of the last one, and its reason."""
    deaths: int | None = None
    committed: int | None = None
    committed_fence: str = ""
    fence: str = ""
    evicting: str | None = None
    evictor: str | None = None
    """The end of the lease of the last claim of its eviction, and the nonce of that claim."""
    policy: str = ""
    """The policy, as in the counters: w kept whole, x exempt, then its own time to live."""
    dropped_seq: int | None = None

    @property
    def total(self) -> int:
        return len(self.entries)

    @property
    def places(self) -> list[Entry]:
        """The entries of the window, one for each seq."""
        return self.entries[self.first_seq - 1 :]

    @property
    def elements(self) -> list[Entry]:
        """The elements of the window: one stands for all gaps that follow each other."""
        before = [None, *self.places]
        return [entry for last, entry in zip(before, self.places, strict=False) if not (entry == last == GAP)]

    def place(self, seq: int) -> int:
        """Return the place of a seq among the stored elements of the window."""
        before = [None, *self.places][: seq - self.first_seq]
        return sum(not (entry == last == GAP) for last, entry in zip(before, self.places, strict=False))

    @property
    def window(self) -> list[Entry]:
        """The messages that count."""
        return [entry for entry in self.places if entry.kind == "counted"]

    @property
    def pinned(self) -> dict[int, Entry]:
        """The pinned messages by their seqs, in the window or not."""
        return {seq: entry for seq, entry in enumerate(self.entries, 1) if entry.kind == "pinned"}

    def entry(self, seq: int) -> Entry | None:
        """Return the entry of a seq, or `None` if the seq was never given."""
        return self.entries[seq - 1] if seq <= self.total else None

    def is_as_seen(self, seen: SeenSession) -> bool:
        """True if nothing was written since, and no message has left the window."""
        return (self.life, self.version, self.first_seq, self.total) == seen[:4]

    def first_after(self, from_seq: int) -> int:
        """Return where the window begins after a rewrite from a seq before it."""
        covering = [each.first_seq for each in self.summaries if each.first_seq <= from_seq <= each.last_seq]
        return covering[0] if covering else from_seq

    def restored(self, seq: int) -> Entry:
        """Return the entry that comes back into the window, or is in it."""
        entry = self.entries[seq - 1]
        return entry if entry.kind == "pinned" or seq >= self.first_seq else self.left[seq]

    def leave(self, count: int) -> list[Entry]:
        """Remove `count` seqs from the head of the window; pinned messages stay entries."""
        leaving = self.places[:count]
        group = [seq for seq in self.pinned if self.first_seq <= seq < self.first_seq + count]
        self.groups += [group] if group else []
        for seq in range(self.first_seq, self.first_seq + count):
            self.left[seq] = self.entries[seq - 1]
            if self.entries[seq - 1].kind != "pinned":
                self.entries[seq - 1] = GAP
        self.first_seq += count
        return leaving
