"""Records: versioned fields and an order of members, for frameworks that keep more than a list of messages."""

from redismem.protocol.record.changes import Change
from redismem.protocol.record.heads import Head
from redismem.protocol.record.listing import RecordEntry, RecordPage
from redismem.protocol.record.reads import Found, Page, Related, Trace, Traced, Walk
from redismem.record.record import Record

__all__ = [
    "Change",
    "Found",
    "Head",
    "Page",
    "Record",
    "RecordEntry",
    "RecordPage",
    "Related",
    "Trace",
    "Traced",
    "Walk",
]
