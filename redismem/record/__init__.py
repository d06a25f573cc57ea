"""Records: versioned fields and an order of members, for frameworks that keep more than a list of messages."""

from redismem.protocol.record.changes import Change
from redismem.protocol.record.heads import Head
from redismem.protocol.record.listing import RecordEntry, RecordPage
from redismem.protocol.record.reads import Found, Page, Related, Trace, Traced, Walk
from redismem.record.record import Record
from redismem.record.retention import Retention
from redismem.record.together import get_all, write_all
from redismem.record.transcripts.transcript import Transcript, TranscriptPage
from redismem.record.transcripts.transcripts import Transcripts

__all__ = [
    "Change",
    "Found",
    "Head",
    "Page",
    "Record",
    "RecordEntry",
    "RecordPage",
    "Related",
    "Retention",
    "Trace",
    "Traced",
    "Transcript",
    "TranscriptPage",
    "Transcripts",
    "Walk",
    "get_all",
    "write_all",
]
