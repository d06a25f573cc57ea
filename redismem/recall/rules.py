"""Choose the standing rules that a question concerns, such as "always answer in French". No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from redismem.originals.signatures import TEXT_CHARS, stem_hash
from redismem.text.rules import is_rule, replaces, subject_of
from redismem.text.sentences import split_sentences


def subject_hashes(text: str) -> Set[int]:
    """Return the hashes of the stems that tell the subject of the rules in a text."""
    rules = [sentence for sentence in split_sentences(text[:TEXT_CHARS]) if is_rule(sentence)]
    return {stem_hash(stem) for rule in rules for stem in subject_of(rule)}


def choose_rules(rules: Iterable[int], subject: Callable[[int], Set[int]], asked: Sequence[int]) -> list[int]:
    """Return the rules whose subject shares a stem with the question, without those that a newer one replaces.

    Args:
        rules: The seqs of messages with rules, best first.
        subject: Returns the hashes of the subject's stems, by seq.
        asked: The hashes of the question's stems.
    """
    subjects = {seq: subject(seq) for seq in rules}
    return [
        seq
        for seq, its in subjects.items()
        if not its.isdisjoint(asked)
        and not any(newer > seq and replaces(its, other) for newer, other in subjects.items())
    ]
