"""The list of commands: the function of each, and its line of `redismem --help`."""

from __future__ import annotations

HELP = """Session memory for chat backends, on Redis.

Each command uses the Redis of `--url` or `REDISMEM_URL`; without either, an embedded store that ends with the command.
All other settings come from `REDISMEM_*` variables. Exit codes: 0 success, 1 failure, 2 wrong usage.
"""

# By name, so that a command's file is imported only when that command runs.
COMMANDS: dict[str, str | dict[str, str]] = {
    "demo": "demo.command:demo",
    "replay": "replay.command:replay",
    "import": "importing.command:import_",
    "sessions": "sessions:sessions",
    "show": "sessions:show",
    "recall": "recall:recall",
    "clear": "sessions:clear",
    "forget": "forget:forget",
    "worker": "worker:worker",
    "serve": "serve:serve",
    "key": "serve:key",
    "mcp": "mcp:mcp",
    "queues": "queues:queues",
    "watch": "watch:watch",
    "dead": {"list": "dead:list_dead", "retry": "dead:retry", "drop": "dead:drop"},
    "quarantine": {
        "list": "quarantine:list_quarantined",
        "show": "quarantine:show",
        "restore": "quarantine:restore",
        "drop": "quarantine:drop",
    },
    "dictionaries": {"list": "dictionaries:list_dictionaries", "drop": "dictionaries:drop"},
    "namespaces": "namespaces:namespaces",
    "project": {
        "list": "project:projects",
        "show": "project:show",
        "decisions": "project:decisions",
        "chain": "project:chain",
        "tasks": "project:tasks",
        "board": "project:board",
        "entities": "project:entities",
        "consolidate": "project:consolidate",
        "export": "project_files:export",
        "import": "project_files:import_",
    },
    "check": "check:check",
    "doctor": "doctor:doctor",
    "deploy": "deploy:deploy",
    "settings": "settings:settings",
}
# The lines of `redismem --help`. They equal the first lines of the docstrings, so that it imports no command.
HELP_OF = {
    "demo": "Play a bundled support chat turn by turn.",
    "replay": "Store transcripts from a file turn by turn and time this; then summarise, read everything back and "
    "compare.",
    "import": "Copy conversations from another store into sessions that the framework's adapter reads.",
    "sessions": "List the sessions of a namespace, most recently active first.",
    "show": "Show a session: summaries, pending and recent messages, state names, counters.",
    "recall": "Find earlier messages that match a question, among the summarised messages.",
    "clear": "Remove a session with its messages, summaries, state and queue entries.",
    "forget": "Remove all sessions and records of a person: by owner, or by the beginning of their ids.",
    "worker": "Summarise and evict sessions, until SIGTERM or SIGINT.",
    "serve": "Serve the memory over HTTP, until SIGTERM or SIGINT.",
    "key": "Create a key: prints the key, which is shown only once, and below it the line for the key list.",
    "mcp": "Serve the memory to models over the Model Context Protocol, as tools for sessions and projects.",
    "queues": "Show the queues: how many sessions wait, and for how long.",
    "watch": "Watch the queues: refreshes in place on a terminal, prints one line per poll when piped.",
    "namespaces": "List the namespaces of a Redis with their numbers of shards, sessions and records.",
    "check": "Check every session, project and record of a namespace against the invariants.",
    "doctor": "Check the Redis server, the namespace and the settings, and advise what to change.",
    "deploy": "Load the scripts, as a user with that right: see the ACL in docs/operations.md.",
    "settings": "List every setting: its variable, the value in use, its source and its meaning.",
    "dead": "Sessions whose summary failed too often: list, retry or drop them.",
    "quarantine": "Sessions and records that could not be read: list them; show, restore or drop one.",
    "dictionaries": "Compression dictionaries of summarised messages: list them, drop one that is not in use.",
    "project": "The decisions, tasks and entities of a project: tables, board, history, statistics, files.",
}
