"""Break one line of a script at a time: a scene must notice each fault, so that none is noticed by chance.

support/mutants.py pins a fault to its line.

Some faults are not here, since no run can tell them from the intact scripts. Two are a second line behind the fence:
commit without `window_count < count`: if fence, epoch and first_seq are as claimed, the window has only grown.
commit without the check of the summaries it folds: under the same fence no other worker can have folded them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from support.mutants import Mutant, find_survivors, mutate
from support.redis_server import RedisServer

from model_check.scene_machine import EVERY_SCENE, SceneMachine, play_one

NEVER = (r"if .*? then", "if false then")
MINUS = (r" - \w+\)$", ")")
PLUS = (r" \+ \w+", "")
OWN_NONCE = "string.match(evictor or '-', '%d*%-') .. nonce"
NONCE = (r" \.\. '-' \.\. \w+", " .. '-0'")
FIRST_OF_ALL = (r"\{(\w+),.*?\}", r"{\1}")
ALWAYS_CHOSEN = (r"$", " .. ' idle'")
NEVER_CHOSEN = (r"\w+\)$", "'')")

MUTANTS = [
    Mutant("claim", "takes a session before its time", "due", *NEVER),
    Mutant("claim", "does not know its own lease", "made before", r"= .*", "= false"),
    Mutant("claim", "takes another's lease", "made before", r" and string.*", ""),
    Mutant("claim", "goes on with a lease that has ended", "made before", r" and tonumber\(due\) > now", ""),
    Mutant("claim", "takes what is in no queue", "in a queue", r"if not (\w+) then .*", r"\1 = \1 or 0"),
    Mutant("claim", "counts no attempts", "noted", r" \+ 1", ""),
    Mutant("claim", "fence without a nonce", "fence", *NONCE),
    Mutant("claim", "fence counted by session", "fence", r"'INCR', \w+", "'HINCRBY', KEYS[2], 'n', 1"),
    Mutant("claim", "notes a fence that was before", "noted", r"'fence', \w+", "'fence', redis.call('GET', KEYS[6])"),
    Mutant("claim", "stays overdue", "off the queue"),
    Mutant("claim", "tries for ever", "attempts left", *NEVER),
    Mutant("claim", "the dead are not listed", "listed as dead"),
    Mutant("claim", "the dead keep their fence", "end of the fence"),
    Mutant("claim", "wakes for nothing", "needed", *NEVER),
    Mutant("claim", "never folds", "folds", r"= .*", "= false"),
    Mutant("claim", "an expired session stays listed as dead", "gone"),
    Mutant("claim", "lease without an end", "lease", r"\+ \w+", "* 2"),
    Mutant("claim", "the dead are not counted", "deaths", r" \+ 1", ""),
    Mutant("claim", "what went wrong stays when nothing waits", "nothing waits", r", 'failure', 'deaths'", ""),
    Mutant("extend", "for anybody", "fence"),
    Mutant("extend", "no longer than before", "lease", *PLUS),
    Mutant("commit", "into another epoch", "epoch"),
    Mutant("commit", "twice", "made before"),
    Mutant("commit", "after another took over", "fence"),
    Mutant("commit", "over a window that was pruned", "the window"),
    Mutant("commit", "one message too few", "messages go", r", (\w+), -1\)", r", \1 - 1, -1)"),
    Mutant("commit", "everything appended meanwhile goes", "messages go", r"'LTRIM', (\w+), \w+, -1", r"'DEL', \1"),
    Mutant("commit", "tokens stay", "tokens", *MINUS),
    Mutant("commit", "a chosen session is not chosen any more", "chosen", *NEVER_CHOSEN),
    Mutant("commit", "lost wake-up", "overdue again"),
    Mutant("commit", "too many summaries are not folded", "folds", r" or .*", ""),
    Mutant("commit", "blocks stay beside the merged one", "merged"),
    Mutant("commit", "lease goes on", "end of the lease"),
    Mutant("commit", "fence goes on", "end of the claim", r"'fence', 'attempts'", "'attempts'"),
    Mutant("commit", "attempts go on", "end of the claim", r"'attempts', ", ""),
    Mutant("commit", "not remembered", "committed", r"'committed', \w+,", ""),
    Mutant("commit", "folded summaries stay", "folded"),
    Mutant("commit", "summary is lost", "summary"),
    Mutant("commit", "originals are lost", "originals"),
    Mutant("commit", "a signature is lost", "originals", r"22 \+ ", "20 + "),
    Mutant("commit", "originals never expire", "expiry"),
    Mutant("set_aside", "a block that was mended since", "as it was read"),
    Mutant("set_aside", "stays where it cannot be read", "gone from here"),
    Mutant("set_aside", "its signature stays", "gone from here", r"unpack.*\)\)", "field)"),
    Mutant("append", "messages expire after the originals", "bodies"),
    Mutant("edit", "another life", "epoch"),
    Mutant("edit", "twice", "known", *NEVER),
    Mutant("edit", "what came since, too", "appended since"),
    Mutant("edit", "over a window that has changed", "the window"),
    Mutant("edit", "over a session that was edited", "edited since"),
    Mutant("edit", "summaries that were folded since", "the summaries"),
    Mutant("edit", "what others have appended at these places", "as it was read"),
    Mutant("edit", "what was replaced since", "what it replaces", *NEVER),
    Mutant("edit", "pins are not noted", "noted"),
    Mutant("edit", "tokens stay", "tokens", r" \+ \w+\)$", ")"),
    Mutant("edit", "pinned messages are counted for ever", "what stays", r" \+ more_uncounted", ""),
    Mutant("edit", "seqs without an element are counted for ever", "what stays", r" \+ more_hidden", ""),
    Mutant("edit", "seqs without an element count", "counted", r" \+ \w+ -", " -"),
    Mutant("edit", "gaps count as messages", "uncounted"),
    Mutant("edit", "gaps are looked for", "hidden"),
    Mutant("edit", "more than a window holds", "full", *NEVER),
    Mutant("edit", "evicted all the same", "off the eviction queue"),
    Mutant("edit", "noted as chosen all the same", "not chosen"),
    Mutant("edit", "messages expire before the state", "all expire", r"messages, ", ""),
    Mutant("edit", "summaries and pins of what is gone stay", "dropped"),
    Mutant("edit", "originals before a gap", "originals go"),
    Mutant("edit", "originals of what is gone stay", "cut originals", r"= .*", "= false"),
    Mutant("edit", "originals are lost", "originals"),
    Mutant("edit", "a signature is lost", "originals", r"\w+ - 1\)\)\)", "first_gone - 3)))"),
    Mutant("edit", "originals never expire", "originals expire"),
    Mutant("edit", "its original stays", "original goes"),
    Mutant("edit", "takes no seq of its own", "new", r"total \+ \w+", "total"),
    Mutant("edit", "a chosen session is not chosen any more", "new", *NEVER_CHOSEN),
    Mutant("edit", "summaries of what is gone", "edited"),
    Mutant("edit", "stays in the window", "in the window"),
    Mutant("edit", "not in its place", "in the window", r"ARGV\[at\]", "ARGV[at] + 1"),
    Mutant("edit", "gaps that are gone stay", "no two gaps"),
    Mutant("edit", "one message too few", "messages go", r"string.*?\)\)", "string.match(kept, '%d+') - 1, -1)"),
    Mutant("edit", "everything appended meanwhile goes", "messages go", r"'LTRIM', (\w+), .*?\)\)", r"'DEL', \1)"),
    Mutant("edit", "a window of its own never expires", "expiry"),
    Mutant("touch", "originals expire before the state", "all expire", r", originals", ""),
    Mutant("commit", "originals of an earlier life", "old originals", r"not \w+ or ", ""),
    Mutant("commit", "originals with a gap", "old originals", r" or \w+ == 0\)", ")"),
    Mutant("commit", "what went wrong stays", "well again", r"'failure', ", ""),
    Mutant("commit", "a dropped session stays dropped", "well again", r", 'dropped_seq'", ""),
    Mutant("commit", "what was learned of the words is lost", "sketch"),
    Mutant("commit", "a fold forgets the words", "sketch", r"if .*? then", "if true then"),
    Mutant("release", "the dead are not counted", "deaths", r" \+ 1", ""),
    Mutant("release", "the first failure is forgotten", "since the first", r"string\.match\(.*\) or ", ""),
    Mutant("release", "for anybody", "fence"),
    Mutant("release", "fence goes on", "end of the fence"),
    Mutant("release", "lease goes on", "end of the lease"),
    Mutant("release", "every attempt counts", "counts", r"\(1 - \w+\)", "0"),
    Mutant("release", "tried for ever", "attempts left", *NEVER),
    Mutant("release", "at once again", "due", *PLUS),
    Mutant("requeue", "attempts stay", "attempts"),
    Mutant("requeue", "what is not dead", "dead"),
    Mutant("requeue", "stays listed", "off the list", r"= .*", "= 1"),
    Mutant("requeue", "not noted as dropped", "dropped"),
    Mutant("queue_eviction", "touched since", "not touched since", r"\(\w+ == .*?\) and ", ""),
    Mutant("queue_eviction", "over again, as fresh", "not touched since", r" and .* then", " then"),
    Mutant("queue_eviction", "not noted", "reason"),
    Mutant("queue_eviction", "what has expired is not told", "by itself"),
    Mutant("set_policy", "kept whole, but still overdue", "kept whole"),
    Mutant("set_policy", "kept whole, but not fenced", "fenced"),
    Mutant("set_policy", "waits for nothing", "looked at"),
    Mutant("append", "kept whole, but overdue", "kept whole", r" and not \w+", ""),
    Mutant("append", "its own time is not kept", "its own time"),
    Mutant("append", "is not watched", "watched"),
    Mutant("queue_eviction", "evicts an exempt session", "not touched since", r" and not is_exempt", ""),
    Mutant("queue_eviction", "hands over before the time", "its own time", r"reason == .*", "now"),
    Mutant("queue_eviction", "expires before it is handed over", "handed over first", *NEVER),
    Mutant("queue_eviction", "messages expire before the state", "all expire", r"messages, ", ""),
    Mutant("queue_eviction", "what has expired stays", "expired", "'none'", "'x'"),
    Mutant("claim_eviction", "two at a time", "in hand"),
    Mutant("claim_eviction", "does not know its own lease", "made before", *NEVER),
    Mutant("claim_eviction", "takes another's lease", "made before", r" == .*\)", ""),
    Mutant("claim_eviction", "goes on with a lease that has ended", "made before", r"due > now and ", ""),
    Mutant("claim_eviction", "takes the time it is due for its lease", "made before", r"string.*\)", OWN_NONCE),
    Mutant("claim_eviction", "nobody has the lease", "in whose hand"),
    Mutant("claim_eviction", "before its time", "due", r" or .* then", " then"),
    Mutant("claim_eviction", "touched since", "touched since"),
    Mutant("evict", "with a message that is in no transcript", "as it was read"),
    Mutant("evict", "touched since", "touched since"),
    Mutant("evict", "stays listed", "all", r"\{\w+, ", "{"),
    Mutant("evict", "originals stay", "removal", r", \w+\)$", ")"),
    Mutant("sweep", "lost sessions stay lost", "found again"),
    Mutant("sweep", "a lost lease keeps its fence", "end of the claim", r"'fence', ", ""),
    Mutant("sweep", "the dead are never tried again", "dead for long", *NEVER),
    Mutant("sweep", "the dead are tried again at once", "dead for long", r" \+ \w+", " + 0"),
    Mutant("sweep", "the dead are tried again as often as ever", "ever more rarely", r" \* 2 \^ \(.*?\)", ""),
    Mutant("sweep", "the dead are tried again and stay dead", "not dead any more"),
    Mutant("sweep", "the dead have all their attempts again", "one try", r"\w+ - 1", "0"),
    Mutant("sweep", "in two queues", "in one queue", *NEVER),
    Mutant("sweep", "unlisted for ever", "listed"),
    Mutant("sweep", "chosen for ever", "reason"),
    Mutant("sweep", "what has expired stays", "all", *FIRST_OF_ALL),
    Mutant("pause", "whatever others have noted", "as it was seen"),
    Mutant("pause", "never asked again", "asked again"),
    Mutant("pause", "not noted", "paused"),
    Mutant("pause", "noted for ever", "kept for a while"),
    Mutant("commit", "over a session that was edited", "edited since"),
    Mutant("commit", "pinned messages go", "pinned stay"),
    Mutant("commit", "pinned messages are counted for ever", "uncounted", r"= .*", "= uncounted"),
    Mutant("commit", "pinned messages make it overdue", "counted", r" - math.*", ""),
    Mutant("claim", "pinned messages make it overdue", "counted", r" - \(.*", ""),
    Mutant("touch", "evicted all the same", "off the eviction queue"),
    Mutant("touch", "noted as chosen all the same", "new", *ALWAYS_CHOSEN),
    Mutant("touch", "messages expire before the state", "all expire", r"messages, ", ""),
    Mutant("clear", "a newer session", "epoch"),
    Mutant("clear", "a newer session if it is resent", "sent again", r"noted or ", ""),
    Mutant("clear", "remembers nothing", "noted"),
    Mutant("clear", "leaves the queues", "all", *FIRST_OF_ALL),
    Mutant("set_aside", "leaves the queues", "not listed", r"do .* end", "do end"),
    Mutant("append", "an old lease shadows the new session", "unqueued"),
    Mutant("append", "epoch without a nonce", "epoch", *NONCE),
    Mutant("append", "full before anybody hurries", "half full", r"= .*", "= false"),
    Mutant("append", "evicted all the same", "off the eviction queue"),
    Mutant("append", "noted as chosen all the same", "new", *ALWAYS_CHOSEN),
    Mutant("append", "seqs without an element are looked for", "hidden", r" \+ \(.*\)", ""),
    Mutant("commit", "seqs without an element are counted for ever", "hidden", r"= .*", "= hidden"),
    Mutant("append", "pinned messages are counted", "pinned"),
    Mutant("append", "pinned messages make it overdue", "counted", r" - \(.*", ""),
    Mutant("append", "pins are not noted", "noted"),
    Mutant("append", "into another life of the session", "this life", *NEVER),
    Mutant("append", "whatever the last seq", "last seq", *NEVER),
    Mutant("append", "made twice where the first sending comes late", "overtaken", *NEVER),
    Mutant("append", "notes no resent one", "overtakes", *NEVER),
    Mutant("append", "keeps no note of a resent one", "fenced"),
    Mutant("append", "not known any more", "made before", *NEVER),
    Mutant("append", "what was sent again counts as a duplicate", "sent again", r"fresh >= '2'", "false"),
    Mutant("append", "no call's duplicate", "sent again", r" and .*", ""),
    Mutant("append", "some of the last 16 are forgotten", "the last 16", r"-192", "-60"),
]


SCENES = list(EVERY_SCENE)


class Unkilled(SceneMachine):
    """A machine on a server that writes nothing to disk."""

    restarts_limit = 0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[SceneMachine]]:
    server = RedisServer(tmp_path_factory.mktemp("mutants")).start()
    Unkilled.server = server
    yield Unkilled
    server.stop()


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_every_broken_script_is_noticed(machine: type[SceneMachine]) -> None:
    faults = [mutant.seed() for mutant in MUTANTS]
    with redis.Redis(port=machine.server.port) as client:
        assert find_survivors(faults, SCENES, lambda scene: play_one(machine, scene), client) == []


def test_each_fault_has_its_place() -> None:
    """They are played at night, so a place that is gone is noticed here."""
    for mutant in MUTANTS:
        mutant.seed()


def test_a_fault_survives_a_rename_and_is_missed_where_it_has_no_place() -> None:
    mutant = Mutant("extend", "no longer than before", "lease", r" \+ \w+", "")
    script = "redis.call('ZADD', leased, now + lease_ms, session) -- [lease]\nreturn 1\n"
    assert mutate(script, mutant) == "redis.call('ZADD', leased, now, session)\nreturn 1\n"
    renamed = script.replace("lease_ms", "more_ms").replace("session", "name")
    assert mutate(renamed, mutant) == "redis.call('ZADD', leased, now, name)\nreturn 1\n"
    for lost in (script.replace("[lease]", "[other]"), script * 2, script.replace(" + lease_ms", "")):
        with pytest.raises(AssertionError):
            mutate(lost, mutant)
