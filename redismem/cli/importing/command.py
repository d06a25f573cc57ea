"""`redismem import`: copy conversations from the stores of frameworks, or from a file, and verify them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from redismem.adapters.sessions import make_policy
from redismem.cli.importing import sources
from redismem.cli.importing.copying import Copying, Findings, Owners
from redismem.cli.importing.sources import SOURCES, Conversation, Source
from redismem.cli.options import DEFAULT, DryRun, On, Yes, flag, option
from redismem.cli.place import HOW_TO_NAME_REDIS, open_memory, open_read_only
from redismem.cli.streams import complain, complain_all
from redismem.cli.terminal import UNREACHABLE, Stop, ask, check_file, print_json, progress
from redismem.errors import NotAllowed, StoreUnavailable
from redismem.inspection.figures import plural

SourceName = Annotated[
    Literal["openai-agents", "langchain", "langchain-redis", "llama-index", "jsonl"], option("The store to read.")
]
From = Annotated[str | None, option("Address of the source's Redis. Default: that of `--url`.", name="--from")]
Prefix = Annotated[str | None, option("Beginning of the source's keys. Default: that of the framework.")]
KeyPrefix = Annotated[str | None, option("Beginning of the session ids. Default: that of the adapter.")]
_TTL_HELP = "Seconds without use after which a session expires."
Ttl = Annotated[float | None, Parameter(validator=validators.Number(gt=0), help=_TTL_HELP)]
Summarise = Annotated[bool, flag("Let workers summarise older messages, as `summarise=True` of the adapter.")]
Replace = Annotated[bool, flag("Replace the end of a session from the first difference on; asks first.")]
_OWNERS_HELP = 'File with the owner of each conversation, by its id in the source: `{"<id>": "<owner>", …}` in JSON.'
OwnersFile = Annotated[Path | None, option(_OWNERS_HELP, name="--owners")]


async def import_(  # noqa: PLR0913 (all but the source are options)
    source: SourceName,
    file: Annotated[Path | None, option("The file of `jsonl`.")] = None,
    /,
    *,
    from_url: From = None,
    prefix: Prefix = None,
    key_prefix: KeyPrefix = None,
    ttl: Ttl = None,
    summarise: Summarise = False,
    owners: OwnersFile = None,
    replace: Replace = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    on: On = DEFAULT,
) -> int:
    """Copy conversations from another store into sessions.

    The framework's adapter reads these sessions.     `openai-agents` reads the keys of its RedisSession, `langchain`
    those of langchain-community's RedisChatMessageHistory, `langchain-redis` the documents of langchain-redis, and
    `llama-index` those of its RedisChatStore, whose beginning `--prefix` must name. `jsonl` reads a file:
    `{"session_id": "…", "messages": […]}` per line.

    The source is never changed. Each session is read back and compared. A second run adds what is new in the source and
    changes nothing else, so repeat an interrupted import. A session with other messages is reported and left alone,
    unless `--replace` is given, which asks for confirmation. What a session has beyond the source stays.
    With `--owners`, or `"owner"` in a line of `jsonl`, `redismem remove owner NAME` removes the sessions of a person.
    Exit code 1: a conversation was not imported.
    """
    row = SOURCES[source]
    beginning = _prefix_of(source, row, file, prefix)
    given = None if owners is None else _read_owners(owners, row)
    async with AsyncExitStack() as stack:
        opened = open_read_only(on.url, on.namespace, unused_ok=True) if dry_run else open_memory(on.url, on.namespace)
        memory, place = await stack.enter_async_context(opened)
        if place.embedded:
            raise Stop(f"an import needs a store that outlives this command: {HOW_TO_NAME_REDIS}", 2)
        if replace and not dry_run:
            ask(f"Replace the ends of sessions that differ, in namespace {on.namespace} on {place.name}?", yes=yes)
        if file is not None:
            conversations = sources.lines(file, memory.session)
        else:
            read = memory
            if from_url is not None:
                read, _ = await stack.enter_async_context(open_read_only(from_url, on.namespace, unused_ok=True))
            conversations = sources.conversations(read.store, row, beginning)
        encode = partial(row.encode, summarise=summarise)
        ids = row.key_prefix if key_prefix is None else key_prefix
        copying = Copying(memory, make_policy(ttl, summarise), ids, encode, given, replace=replace, dry_run=dry_run)
        findings = await _run(copying, conversations)
    _report(findings, source, f"namespace {on.namespace} on {place.name}", dry_run=dry_run, as_json=on.as_json)
    _warn(findings, beginning, ttl)
    return 0 if not findings.problems_count else 1


def _prefix_of(source: str, row: Source, file: Path | None, prefix: str | None) -> str:
    """Return the beginning of the source's keys; "" for a file."""
    if row.is_file != (file is not None):
        raise Stop("jsonl needs a file" if row.is_file else f"{source} reads a Redis, not a file", 2)
    if file is not None:
        if prefix is not None:
            raise Stop(f"--prefix is for the keys of a Redis: {source} has none", 2)
        check_file(file)
        return ""
    beginning = row.prefix if prefix is None else prefix
    if not beginning:
        raise Stop(f"{source} needs --prefix, the beginning of its keys, at least one character", 2)
    return beginning


def _read_owners(file: Path, row: Source) -> Owners:
    """Return the owners in a file. An error never quotes it."""
    if row.is_file:
        raise Stop('--owners is for conversations in a Redis: give each line of the file its "owner"', 2)
    try:
        owners = json.loads(file.read_bytes())
    except OSError as error:
        raise Stop(f"cannot read {file}: {error.strerror}", 2) from None
    except (ValueError, RecursionError):
        raise Stop(f"{file} is not JSON", 2) from None
    if not isinstance(owners, dict) or not all(isinstance(owner, str | None) for owner in owners.values()):
        raise Stop(f'{file} is no object of owners by ids, such as {{"s-1": "ann", "s-2": null}}', 2)
    return owners


async def _run(copying: Copying, conversations: AsyncIterator[Conversation]) -> Findings:
    try:
        with progress("conversations") as show:
            return await copying.run(conversations, show)
    except (StoreUnavailable, NotAllowed) as failure:
        done = plural(copying.findings.conversations, "conversation")
        raise Stop(f"interrupted after {done}: {failure}; the same command goes on", UNREACHABLE) from None


def _report(findings: Findings, source: str, where: str, *, dry_run: bool, as_json: bool) -> None:
    complain_all(findings.problems, findings.problems_count)
    if as_json:
        numbers = {"conversations": findings.conversations, **asdict(findings)}
        problems = [{"conversation": name, "problem": reason} for name, reason in findings.problems]
        print_json({"source": source, "into": where, "dry_run": dry_run, **numbers, "problems": problems})
        return
    copied = plural(findings.copied, "conversation")
    continued = f", {findings.continued:,} of them continued" if findings.continued else ""
    verb = "would import" if dry_run else "imported"
    print(f"{verb} {plural(findings.messages, 'message')} of {copied}{continued}, into {where}")
    verified = "" if dry_run else "; all were read back and are identical"
    print(f"{findings.unchanged:,} were there already, {plural(findings.problems_count, 'problem')}{verified}")


def _warn(findings: Findings, beginning: str, ttl: float | None) -> None:
    if not findings.conversations and beginning:
        complain(f"no key begins with {beginning}: check --prefix, --from and the number of its database")
    if findings.expiring and ttl is None:
        count = plural(findings.expiring, "conversation")
        complain(f"{count} of the source will expire, but not the sessions: pass --ttl, as to the adapter")
