"""What the ACL of a Redis user refuses, and what this library needs of it. No I/O."""

from __future__ import annotations

import re

from redismem.errors import NotAllowed
from redismem.protocol import scripts
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.server_errors import ServerError

# `script|load`: when a server does not know a script yet. `asking` and `cluster|slots`: at the nodes of a cluster;
# `role`: behind sentinels, to see whether it is the primary. The rest lets a connection in.
_LOAD = "script|load"
_LETTING_IN = "cluster|slots role ping auth hello select client|setname"
_WITHOUT_A_KEY = f"evalsha {_LOAD} multi exec time wait asking {_LETTING_IN}"
# What follows the key when it is asked whether a command is allowed: enough to be one.
_WITH_A_KEY = """
hgetall / hget f / hmget f / hstrlen f / hset f v / hsetnx f v / hdel f / hlen / hkeys / hscan 0 / hexists f /
lrange 0 0 / lindex 0 / llen / rpush v / lset 0 v / ltrim 0 0 / zadd 1 v / zrem v / zscore v / zcard / zcount 0 0 /
zrange 0 0 / zrangebyscore 0 0 / zrevrangebyscore 0 0 / zrevrank v / zscan 0 / get / set v / incr / exists / type /
del / rename - / persist / pexpire 1 / pexpireat 1 / pexpiretime / pttl
"""
_PROBES = {name: tuple(rest) for name, *rest in (probe.split() for probe in _WITH_A_KEY.split("/"))}
# Without one: what a connection that is let in has not shown to be allowed. The rest of them it has, but for
# `script|load`, which the user may do without.
_KEYLESS_PROBES = (("EVALSHA", "0" * 40, 0), ("TIME",), ("WAIT", 0, 1), ("PING",))
_CLUSTER_PROBES = (("ASKING",),)
COMMANDS = (*_WITHOUT_A_KEY.split(), *_PROBES)
"""Every command that pods and workers of a namespace use, within scripts and without."""
OPTIONAL = ("vadd", "vsim")
"""Commands that they use if they may, and do without otherwise. Only servers with vector sets have them."""
_DOCTOR_KNOWS = ": redismem doctor says what it needs"
_NAMED = re.compile(r"permissions? to run the '([a-z][a-z0-9_|-]{0,60})' command")
_STOPPED = re.compile(r"script: ([0-9a-f]{40}), on @user_script:([0-9]{1,6})\b")
# From within scripts Redis says it behind ERR: 7.0 in the first words, 8 in the second. Others say NOPERM.
_IN_SCRIPT = re.compile(r"The user executing the script can't |ACL failure in script: ")


def acl(namespace: str, *, loads: bool = True) -> str:
    """What to say behind `ACL SETUSER <user>`, so that pods and workers of this namespace are let do their work.

    Without `loads` they run the scripts that `redismem deploy` has loaded, and no other.
    """
    commands = (command for command in COMMANDS if loads or command != _LOAD)
    return " ".join((f"~rm:{{{namespace}:*", f"~rm:{{{namespace}}}:*", *(f"+{command}" for command in commands)))


def deploy_acl() -> str:
    """The same for the user of `redismem deploy`: it sees no key, and runs nothing."""
    return " ".join(f"+{command}" for command in (_LOAD, "script|exists", *_LETTING_IN.split()))


def permitted(keys: SessionKeys, *, on_cluster: bool) -> Call[bool]:
    """Asks whether the user may run every command, on these keys: NotAllowed names the first that it may not.

    Nothing of it is carried out: the last command is none, so the server refuses the whole transaction.
    """
    keyless = (*_KEYLESS_PROBES, *(_CLUSTER_PROBES if on_cluster else ()))
    probes = tuple(
        (name.upper(), keys.state, *(keys.messages if word == "-" else word for word in rest))
        for name, rest in _PROBES.items()
    )
    return Call(None, (*probes, *keyless, ("GET",)), lambda *_: False)


def not_allowed(error: ServerError, session_id: str | None) -> NotAllowed | None:
    """The error that a refusal by the ACL is; None for another one."""
    if error.word != "NOPERM" and _IN_SCRIPT.search(error.text) is None:
        return None
    stopped = _STOPPED.search(error.text)
    named = _NAMED.search(error.text)
    found = [named[1]] if named else []
    if not found and stopped is not None and "run this command" in error.text:
        found = scripts.commands_at(stopped[1], int(stopped[2]))
    place = "" if stopped is None else " within a script, which stopped there"
    if found:
        what = f"run {' or '.join(command.upper() for command in found)}{place}"
    else:
        what = f"use one of the keys of this call{place}" if "key" in error.text else f"run a command{place}"
    text = f"the ACL of the Redis user does not allow it to {what} (NOPERM){_DOCTOR_KNOWS}"
    return NotAllowed(text, session_id, found[0] if len(found) == 1 else "")


def for_the_doctor(refused: NotAllowed) -> str:
    """What was refused, without the advice to ask the doctor."""
    return str(refused).removesuffix(_DOCTOR_KNOWS)
