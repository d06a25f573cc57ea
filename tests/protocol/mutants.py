"""The scripts broken on purpose, one line at a time: each of these the machine must notice.

A text that is no longer there exactly once fails the test: a fault that is not seeded must not count as caught.

Not here, for nothing can tell them from the sound scripts; each is a second line behind the fence:
commit without `length < count`: where fence, epoch and first_seq are as claimed, the window has only grown.
commit without looking for the summaries it folds: under the same fence nobody else can have folded them.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    script: str
    fault: str
    sound: str
    """what stands in the script"""
    broken: str


_ZREM_ALL = "  for _, queue in ipairs({overdue, leased, dead, evictions}) do redis.call('ZREM', queue, session) end\n"

MUTANTS = [
    Mutant("claim", "takes a session before its time", "if tonumber(due) > now then", "if false then"),
    Mutant("claim", "takes what is in no queue", "if not due then return {'none', '', 0, now} end", "due = due or 0"),
    Mutant("claim", "counts no attempts", "'attempts', attempts + 1)", "'attempts', attempts)"),
    Mutant("claim", "fence without a nonce", " .. '-' .. nonce", " .. '-0'"),
    Mutant("claim", "fence counted by session", "'INCR', fences)", "'HINCRBY', state, 'n', 1)"),
    Mutant("claim", "keeps the fence before", "'fence', fence, 'attempts'", "'fence', seen[1], 'attempts'"),
    Mutant("claim", "stays overdue", "redis.call('ZREM', overdue, session)\nlocal fence", "local fence"),
    Mutant("claim", "tries for ever", "if attempts >= tonumber(max_attempts)", "if attempts > 99"),
    Mutant("claim", "the dead are not listed", "redis.call('ZADD', dead, now, session)", ""),
    Mutant("claim", "the dead keep their fence", "redis.call('HDEL', state, 'fence')\n", ""),
    Mutant("claim", "wakes for nothing", "if not too_long and", "if false and"),
    Mutant("claim", "never folds", " and tonumber(seen[4] or 0) <= tonumber(summaries_limit)", ""),
    Mutant("claim", "an expired session stays listed as dead", "  redis.call('ZREM', dead, session)\n", ""),
    Mutant("claim", "lease without an end", "now + lease_ms, session", "now * 2, session"),
    Mutant("extend", "for anybody", "~= fence then return 0", "== fence .. '!' then return 0"),
    Mutant("extend", "no longer than before", "now + lease_ms", "now"),
    Mutant("commit", "into another epoch", "if seen[1] ~= epoch then return 'gone' end\n", ""),
    Mutant("commit", "twice", "if seen[2] == fence then return 'already' end\n", ""),
    Mutant("commit", "after another took over", "if seen[3] ~= fence then return 'fenced' end\n", ""),
    Mutant("commit", "over a window that was pruned", "if seen_first_seq ~= first_seq or length", "if length"),
    Mutant(
        "commit",
        "one message too few",
        "redis.call('LTRIM', messages, count, -1)",
        "redis.call('LTRIM', messages, count - 1, -1)",
    ),
    Mutant(
        "commit",
        "everything appended meanwhile goes",
        "redis.call('LTRIM', messages, count, -1)",
        "redis.call('DEL', messages)",
    ),
    Mutant("commit", "tokens stay", "old_tokens - tokens", "old_tokens"),
    Mutant(
        "commit",
        "a chosen session is not chosen any more",
        "total, left_tokens, times)",
        "total, left_tokens, string.match(times, '%d+ %d+'))",
    ),
    Mutant("commit", "lost wake-up", "if again then redis.call('ZADD', overdue, now, session) end\n", ""),
    Mutant("commit", "too many summaries are not folded", " or summaries_count > tonumber(summaries_limit)", ""),
    Mutant("commit", "lease goes on", "redis.call('ZREM', leased, session)\n", ""),
    Mutant("commit", "fence goes on", "'HDEL', state, 'fence', 'attempts'", "'HDEL', state, 'attempts'"),
    Mutant("commit", "attempts go on", "'HDEL', state, 'fence', 'attempts',", "'HDEL', state, 'fence',"),
    Mutant("commit", "not remembered", "'committed', fence,\n", "\n"),
    Mutant(
        "commit", "folded summaries stay", "if #ARGV > 14 then redis.call('HDEL', state, unpack(ARGV, 15)) end\n", ""
    ),
    Mutant("commit", "summary is lost", "redis.call('HSET', state, summary_field, summary)\n", ""),
    Mutant("commit", "originals out of order", "redis.call('RPUSH', originals", "redis.call('LPUSH', originals"),
    Mutant(
        "commit",
        "originals of an earlier life",
        "if not seen[6] or originals_ms == 0 then",
        "if originals_ms == 0 then",
    ),
    Mutant("commit", "originals with a gap", "if not seen[6] or originals_ms == 0 then", "if not seen[6] then"),
    Mutant("release", "for anybody", "if seen[1] ~= fence then return 'fenced' end\n", ""),
    Mutant("release", "fence goes on", "redis.call('HDEL', state, 'fence')\n", ""),
    Mutant("release", "lease goes on", "redis.call('ZREM', leased, session)\n", ""),
    Mutant("release", "every attempt counts", "seen[2] - (1 - counts)", "seen[2] - 0"),
    Mutant("release", "tried for ever", "if attempts >= tonumber(max_attempts)", "if attempts > 99"),
    Mutant("release", "at once again", "now + backoff_ms", "now"),
    Mutant("requeue", "attempts stay", "redis.call('HDEL', state, 'attempts')\n", ""),
    Mutant("requeue", "what is not dead", "if seen[1] ~= 'dead' then return listed end\n", ""),
    Mutant("requeue", "stays listed", "redis.call('ZREM', dead, session)", "1"),
    Mutant(
        "requeue",
        "not noted as dropped",
        "redis.call('HSET', state, 'dropped_seq',",
        "redis.call('HSET', state, 'dropped',",
    ),
    Mutant("choose", "touched since", " == seen_ms then", " then"),
    Mutant("choose", "over again, as fresh", "(%d+) %d+$')", "(%d+) %d+')"),
    Mutant("choose", "not noted", "      redis.call('HSET', KEYS[at], 'counters', chosen_for)\n", ""),
    Mutant("choose", "what has expired stays", "elseif kind == 'none' then", "elseif kind == 'x' then"),
    Mutant("hold", "two at a time", "redis.call('ZADD', evictions, now + hold_ms, session)\n", ""),
    Mutant("hold", "before its time", " or tonumber(due) > now", ""),
    Mutant(
        "hold",
        "touched since",
        "if not string.find(redis.call('HGET', state, 'counters') or '', '%a$') then",
        "if false then",
    ),
    Mutant("evict", "with a message that is in no transcript", " or total ~= message_count", ""),
    Mutant("evict", "another life", "seen[1] ~= epoch or ", ""),
    Mutant("evict", "touched since", " or reason == ''", ""),
    Mutant(
        "evict",
        "stays listed",
        "ipairs({active, overdue, leased, dead, evictions})",
        "ipairs({overdue, leased, dead, evictions})",
    ),
    Mutant(
        "evict", "originals stay", "redis.call('DEL', messages, state, originals)", "redis.call('DEL', messages, state)"
    ),
    Mutant("sweep", "lost sessions stay lost", "    redis.call('ZADD', overdue, now, session)\n", ""),
    Mutant(
        "sweep",
        "a lost lease keeps its fence",
        "redis.call('HDEL', key, 'fence', 'attempts')",
        "redis.call('HDEL', key, 'attempts')",
    ),
    Mutant("sweep", "in two queues", "if name ~= queued and redis.call('ZREM', queue, session) == 1", "if false"),
    Mutant("sweep", "unlisted for ever", "    redis.call('ZADD', active, active_ms, session)\n", ""),
    Mutant("sweep", "chosen for ever", "    redis.call('HSET', key, 'counters', counters)\n", ""),
    Mutant("sweep", "what has expired stays", "ipairs({active, overdue, leased, dead, evictions})", "ipairs({active})"),
    Mutant("prune", "over a window that has changed", "seen_first_seq ~= first_seq or redis.call", "redis.call"),
    Mutant("prune", "another life", "if seen[1] ~= epoch then return 0 end\n", ""),
    Mutant("prune", "twice", "if seen[3] == nonce then return 1 end\n", ""),
    Mutant("prune", "tokens stay", "old_tokens - tokens", "old_tokens"),
    Mutant(
        "prune",
        "a chosen session is not chosen any more",
        "left_tokens, times)",
        "left_tokens, string.match(times, '%d+ %d+'))",
    ),
    Mutant("prune", "originals before a gap", "redis.call('DEL', originals)\n", ""),
    Mutant("touch", "evicted all the same", "redis.call('ZREM', evictions, session)\n", ""),
    Mutant("touch", "noted as chosen all the same", "'%s %d %d', numbers", "'%s %d %d idle', numbers"),
    Mutant("touch", "messages expire before the state", "redis.call('PEXPIREAT', messages, expires)\n", ""),
    Mutant(
        "clear", "a newer session", "if (redis.call('HGET', state, 'epoch') or '') ~= epoch then return 0 end\n", ""
    ),
    Mutant("clear", "leaves the queues", "ipairs({active, overdue, leased, dead, evictions})", "ipairs({active})"),
    Mutant("set_aside", "leaves the queues", "ipairs({active, overdue, leased, dead, evictions})", "ipairs({active})"),
    Mutant("set_aside", "a newer session", "  if not broken and seen[1] ~= epoch then return 0 end\n", ""),
    Mutant("append", "an old lease shadows the new session", _ZREM_ALL, ""),
    Mutant("append", "epoch without a nonce", " .. '-' .. nonce", " .. '-0'"),
    Mutant("append", "evicted all the same", "if evicting ~= '' then redis.call('ZREM', evictions, session) end\n", ""),
    Mutant(
        "append",
        "noted as chosen all the same",
        "tokens, active_ms, expires_ms)\nredis",
        "tokens, active_ms, expires_ms) .. string.gsub(evicting, '^%a', ' %0')\nredis",
    ),
    Mutant("append", "made twice where the first sending comes late", "(fresh ~= '1' or repeated)", "fresh ~= '1'"),
    Mutant("append", "not known any more", "(fresh ~= '1' or repeated)", "false"),
    Mutant(
        "append",
        "remembered out of order",
        "'ids_' .. first, 'ids_' .. second,",
        "'ids_' .. second, 'ids_' .. first,",
    ),
]
