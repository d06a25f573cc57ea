"""The findings of the doctor: each rule returns one, in the words that the command line, HTTP and the page show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a finding; `n/a` means the question does not apply to this store."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NOT_HERE = "n/a"


OK, WARN, FAIL, NOT_HERE = Verdict
_WORST_FIRST = (FAIL, WARN, OK, NOT_HERE)

Facts = Mapping[str, str]
"""Names and values from INFO and CONFIG GET. A value that the server does not report is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question: its name, a verdict, the answer in words, and the advice with it."""

    name: str
    verdict: Verdict
    text: str
    advice: str = ""
    """The change that helps; "" if there is nothing to change."""
    acl: str = ""
    """The ACL command that grants the missing rights; "" if no call was refused. It takes no rights away."""
    session_ids: tuple[str, ...] = ()
    """The sessions that the finding is about, if it names sessions in quarantine; at most as many as it looked for."""

    def document(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return {"name": self.name, "verdict": str(self.verdict), "seen": self.text, "advice": self.advice}


def rank(finding: Finding) -> int:
    """Return a sort key that puts the worst finding first."""
    return _WORST_FIRST.index(finding.verdict)


def worst(findings: Sequence[Finding]) -> Finding:
    """Return the finding with the worst verdict, or the first one of several."""
    return min(findings, key=rank)


def acl_of(findings: Iterable[Finding]) -> str:
    """Return the ACL command that grants the missing rights; "" if no call was refused."""
    return next((finding.acl for finding in findings if finding.acl), "")
