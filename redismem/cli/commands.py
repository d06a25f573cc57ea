"""The list of commands: the function of each, its line of `redismem --help`, and the present names of earlier ones."""

from __future__ import annotations

HELP = """Session memory for chat backends, on Redis.

Each command uses the Redis of `--url` or `REDISMEM_URL`; without either, an embedded store that ends with the command.
All other settings come from `REDISMEM_*` variables. Whatever removes or overwrites asks first; without a terminal it
needs `--yes`.

Exit codes: 0 success, 1 a finding or a failure, 2 wrong usage, 3 Redis does not answer or refuses.
"""

# By name, so that a command's file is imported only when that command runs. A command with kinds has a row for each.
COMMANDS: dict[str, str | dict[str, str]] = {
    "serve": "serve:serve",
    "worker": "worker:worker",
    "key": "key:key",
    "demo": "demo.command:demo",
    "list": {
        "sessions": "sessions:list_sessions",
        "records": "record_view:list_records",
        "projects": "project:list_projects",
        "namespaces": "namespaces:list_namespaces",
        "dead": "dead:list_dead",
        "quarantine": "quarantine:list_quarantined",
        "dictionaries": "dictionaries:list_dictionaries",
        "settings": "settings:list_settings",
    },
    "show": {
        "session": "sessions:show",
        "record": "record_view:show",
        "project": "project:show",
        "quarantine": "quarantine:show",
    },
    "search": "search:search",
    "project": {
        "decisions": "project:decisions",
        "history": "project:history",
        "tasks": "project:tasks",
        "entities": "project:entities",
        "consolidate": "project:consolidate",
        "export": "project_files:export",
        "import": "project_files:import_",
    },
    "status": "status:status",
    "doctor": "doctor:doctor",
    "bench": "bench.command:bench",
    "tune": "tune.command:tune",
    "import": "importing.command:import_",
    "remove": {
        "session": "sessions:remove",
        "owner": "forget:remove_owner",
        "prefix": "forget:remove_prefix",
        "dead": "dead:remove",
        "quarantine": "quarantine:remove",
        "dictionary": "dictionaries:remove",
    },
    "repair": {"dead": "dead:repair", "quarantine": "quarantine:repair", "scripts": "scripts:repair"},
}
# The kind of a command that is not given one.
DEFAULT_KINDS = {"list": "sessions", "show": "session", "remove": "session"}
HEADINGS = {"serve": "Run", "list": "Look", "import": "Change"}
"""The heading above a command, in `redismem --help`."""
# The lines of `redismem --help`. They equal the first lines of the docstrings, so that it imports no command.
HELP_OF = {
    "serve": "Serve the memory over HTTP, with a page; `--mcp`: to models.",
    "worker": "Summarise and evict sessions, until SIGTERM or SIGINT.",
    "key": "Create a key for a server; the key is shown only once.",
    "demo": "Play a bundled support chat turn by turn.",
    "list": "List sessions, records, projects, namespaces, dead …",
    "show": "Show a session, a record, a project, a copy in quarantine.",
    "search": "Find messages by their words.",
    "project": "The decisions, tasks and entities of a project; its files.",
    "status": "Show the queues: what waits, and for how long; `--watch`.",
    "doctor": "Check server, namespace and settings, and advise; `--deep`.",
    "bench": "Measure turns on your Redis, beside redis-py by hand.",
    "tune": "Play your conversations through settings.",
    "import": "Copy conversations from another store into sessions.",
    "remove": "Remove a session, or everything of a person.",
    "repair": "Retry dead sessions, restore from quarantine, load scripts.",
}
# Names of an earlier release. The key is one word, or two of a command that had commands of its own.
MOVED = {
    "replay": "tune",
    "demo replay": "tune",
    "demo chat": "demo",
    "sessions": "list",
    "recall": "search",
    "clear": "remove",
    "forget --owner": "remove owner",
    "forget --prefix": "remove prefix",
    "forget": "remove owner",
    "mcp": "serve --mcp",
    "queues": "status",
    "watch": "status --watch",
    "dead list": "list dead",
    "dead retry": "repair dead",
    "dead drop": "remove dead",
    "dead": "list dead",
    "quarantine list": "list quarantine",
    "quarantine show": "show quarantine",
    "quarantine restore": "repair quarantine",
    "quarantine drop": "remove quarantine",
    "quarantine": "list quarantine",
    "dictionaries list": "list dictionaries",
    "dictionaries drop": "remove dictionary",
    "dictionaries": "list dictionaries",
    "namespaces": "list namespaces",
    "project list": "list projects",
    "project show": "show project",
    "project board": "project tasks --board",
    "project chain": "project history",
    "check": "doctor --deep",
    "deploy": "repair scripts",
    "settings": "list settings",
}
