"""The ACL that a Redis user needs, and the decoding of refused commands: by an ACL, a server or a proxy. No I/O."""

from __future__ import annotations

import re

from redismem.errors import NotAllowed
from redismem.protocol import scripts
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.server_errors import ServerError

# `script|load` loads a missing script. Listeners of a turn poll without `spublish`, `ssubscribe` and `sunsubscribe`.
# Cluster nodes need `asking` and `cluster|slots`. Behind sentinels `role` tells the primary. The rest connects.
_LOAD = "script|load"
_LISTENING = "spublish ssubscribe sunsubscribe"
_LETTING_IN = "cluster|slots role ping auth hello select client|setname"
_WITHOUT_A_KEY = f"evalsha {_LOAD} multi exec time wait asking {_LISTENING} {_LETTING_IN}"
# Arguments that follow the key in a probe: the fewest with which the command is valid.
_WITH_A_KEY = """
hgetall / hget f / hmget f / hstrlen f / hset f v / hsetnx f v / hdel f / hlen / hkeys / hscan 0 / hexists f /
lrange 0 0 / lindex 0 / llen / rpush v / lrem 0 v / lset 0 v / ltrim 0 0 / zadd 1 v / zrem v / zscore v / zmscore v /
zcard / zcount 0 0 / zrange 0 0 / zrangebyscore 0 0 / zrevrangebyscore 0 0 / zrevrank v / zscan 0 / get / set v / incr /
exists / type / del / unlink / rename - / persist / pexpire 1 / pexpireat 1 / pexpiretime / pttl /
setrange 0 v / strlen / getrange 0 0
"""
_PROBES = {name: tuple(rest) for name, *rest in (probe.split() for probe in _WITH_A_KEY.split("/"))}
# Commands without a key that opening a connection does not use. `script|load` is optional, so it is not probed.
_KEYLESS_PROBES = (("EVALSHA", "0" * 40, 0), ("TIME",), ("WAIT", 0, 1), ("PING",))
_CLUSTER_PROBES = (("ASKING",),)
COMMANDS = (*_WITHOUT_A_KEY.split(), *_PROBES)
"""Every command that pods and workers of a namespace use, inside and outside scripts."""
_DOCTOR_KNOWS = ": `redismem doctor` says what it needs"
_NAMED = re.compile(r"permissions? to run the '([a-z][a-z0-9_|.-]{0,60})' command")
_STOPPED = re.compile(r"script: ([0-9a-f]{40}), on @user_script:([0-9]{1,6})\b")
# Servers name a command that was renamed or turned off, proxies one that they do not pass on.
_UNKNOWN = re.compile(
    r"(?:un(?:known|supported) (?:sub)?command|command is not available):? [`'\"]([a-z][a-z0-9_|.-]{0,60})[`'\"]",
    re.IGNORECASE,
)
_UNKNOWN_IN_SCRIPT = "Unknown Redis command called from script"
# Advice for commands that have a substitute, or whose refusal does not stop the others of the call.
_ADVICE = {
    "hello": "; without protocol=3 in the URL it is not needed",
    "select": "; with database 0 in the URL it is not needed",
    "multi": "; the commands of this call ran one by one, so it may have been made",
}
# Inside scripts, Redis 7.0 reports a refusal as ERR with the first text, Redis 8 with the second. Others report NOPERM.
_IN_SCRIPT = re.compile(r"The user executing the script can't |ACL failure in script: ")


def acl(namespace: str, *, loads: bool = True) -> str:
    """Return the arguments of `ACL SETUSER <user>` for pods and workers of this namespace.

    Without `loads`, the user can only run scripts that `redismem repair scripts` has loaded.
    """
    commands = (command for command in COMMANDS if loads or command != _LOAD)
    return " ".join(
        (
            f"~rm:{{{namespace}:*",
            f"~rm:{{{namespace}}}:*",
            f"&rm:{{{namespace}:*",
            *(f"+{command}" for command in commands),
        )
    )


def deploy_acl() -> str:
    """Return the arguments of `ACL SETUSER` for `redismem repair scripts`: no keys, no commands that run scripts."""
    return " ".join(f"+{command}" for command in (_LOAD, "script|exists", *_LETTING_IN.split()))


def check_permissions(keys: SessionKeys, *, on_cluster: bool) -> Call[bool]:
    """Build a call that checks that the user may run every command on these keys.

    If a command is forbidden, the call fails with NotAllowed, which names the first one. No command runs, because the
    last one is invalid, so that the server refuses the whole transaction.
    """
    keyless = (*_KEYLESS_PROBES, *(_CLUSTER_PROBES if on_cluster else ()))
    probes = tuple(
        (name.upper(), keys.state, *(keys.messages if word == "-" else word for word in rest))
        for name, rest in _PROBES.items()
    )
    return Call(None, (*probes, *keyless, ("GET",)), lambda *_: False)


def check_listening(keys: SessionKeys) -> Call[bool]:
    """Build a call that checks that the user may tell and hear events on the channel of this session.

    It fails as `check_permissions` does, and like that one runs no command: nothing is published.
    """
    probes = (("SSUBSCRIBE", keys.live), ("SUNSUBSCRIBE", keys.live), ("SPUBLISH", keys.live, ""))
    return Call(None, (*probes, ("GET",)), lambda *_: False)


def decode_refused_command(error: ServerError, session_id: str | None) -> NotAllowed | None:
    """Decode the refusal of a command: by the ACL, or because the server does not have it. Other errors give None.

    A Redis that is not a sentinel does not have SENTINEL; the store explains that.
    """
    unknown = _UNKNOWN.search(error.text)
    is_missing = unknown is not None or _UNKNOWN_IN_SCRIPT in error.text
    is_forbidden = error.word == "NOPERM" or _IN_SCRIPT.search(error.text) is not None
    if not (is_missing or is_forbidden) or (unknown is not None and unknown[1] == "SENTINEL"):
        return None
    stopped = _STOPPED.search(error.text)
    named = unknown or _NAMED.search(error.text)
    commands = [named[1].lower()] if named else []
    if not commands and stopped is not None and (is_missing or "run this command" in error.text):
        commands = scripts.commands_at(stopped[1], int(stopped[2]))
    place = "" if stopped is None else " within a script, which stopped there"
    names = " or ".join(command.upper() for command in commands)
    command = commands[0] if len(commands) == 1 else ""
    advice = _ADVICE.get(command, "")
    if is_missing:
        why = "renamed, turned off, or not passed on by a proxy"
        text = f"the server does not have {names or 'a command'}{place}: it is {why}{advice}"
        return NotAllowed(text, session_id, command)
    named_kinds = (f"use one of the {kind}s of this call" for kind in ("key", "channel") if kind in error.text)
    what = f"run {names}" if names else next(named_kinds, "run a command")
    text = f"the ACL of the Redis user does not allow it to {what}{place} (NOPERM){advice}{_DOCTOR_KNOWS}"
    return NotAllowed(text, session_id, command)


def is_by_acl(refused: NotAllowed) -> bool:
    """True if the ACL refused the command, so that another ACL would allow it."""
    return str(refused).endswith(_DOCTOR_KNOWS)


def strip_advice(refused: NotAllowed) -> str:
    """Return the text of a refusal without the hint to run the doctor."""
    return str(refused).removesuffix(_DOCTOR_KNOWS)
