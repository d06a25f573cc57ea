"""The common behaviour of all commands: help, exit codes, one-line errors, colours and pipes."""

import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest
from support.commands import start_command, wait_for_exit, wait_for_line
from support.redis_server import free_port

from redismem.cli.app import app
from redismem.cli.commands import COMMANDS as FUNCTIONS
from redismem.cli.commands import HELP_OF
from redismem.cli.place import safe_url

COMMANDS = (
    *("demo", "replay", "import", "sessions", "show", "clear", "worker", "queues", "watch", "dead"),
    *("quarantine", "namespaces", "check", "doctor", "deploy"),
)
COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-9]")
GROUPS = {"dead": ("list", "retry", "drop"), "quarantine": ("list", "show", "restore", "drop")}
WITH_OPTIONS = [[name] for name in COMMANDS if name not in GROUPS]
WITH_OPTIONS += [[group, name] for group, names in GROUPS.items() for name in names]


def test_the_first_help_lists_every_command(command: Any) -> None:
    for words in ([], ["--help"], ["-h"]):
        ran = command(*words)
        assert (ran.code, ran.err) == (0, "")
        assert all(re.search(rf"  {name} +[A-Z]", ran.out) for name in COMMANDS)
        assert "REDISMEM_URL" in ran.out


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_lists_its_commands(command: Any, group: str) -> None:
    for words in ([group], [group, "--help"]):
        ran = command(*words)
        assert (ran.code, ran.err) == (0, "")
        assert all(re.search(rf"│ {name} +[A-Z]", ran.out) for name in GROUPS[group])


@pytest.mark.parametrize("words", WITH_OPTIONS, ids=" ".join)
def test_every_command_has_a_help_with_the_common_options(command: Any, words: Any) -> None:
    ran = command(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "--url" in ran.out
    assert "--json" in ran.out or words == ["demo"]
    assert "--namespace" in ran.out or words in (["namespaces"], ["deploy"])
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_help_of_replay_explains_turns_and_the_end_of_its_sessions(command: Any) -> None:
    text = " ".join(command("replay", "--help").out.split())
    for words in ("A turn is one append_and_read", "A verified session is cleared", "--keep", "Exit code"):
        assert words in text


def test_lines_that_came_with_the_one_that_was_read_are_not_lost() -> None:
    with start_command("--help") as running:
        assert wait_for_line(running.stdout, "Session memory")
        ended = wait_for_exit(running)
    assert (ended.code, ended.err) == (0, "")
    assert "REDISMEM_URL" in ended.out


def test_without_a_command_no_library_is_loaded() -> None:
    """They answer in a tenth of the time that the libraries of the commands take to load."""
    code = (
        "import sys; before = set(sys.modules); from redismem.cli import main; "
        "[main(words) for words in (['--help'], [], ['--version'], ['sesions'])]; "
        "loaded = set(sys.modules) - before; names = {name.partition('.')[0] for name in loaded}; "
        "print(sorted(names - sys.stdlib_module_names), sorted(names & {'asyncio', 'logging', 'ssl'}), "
        "sorted(name for name in loaded if name.startswith('redismem.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cli = ["redismem.cli.commands", "redismem.cli.overview", "redismem.cli.streams"]
    assert done.stdout.splitlines()[-1] == f"['redismem'] [] {cli}"


def test_an_unknown_command_is_answered_with_the_one_most_alike(command: Any) -> None:
    ran = command("sesions")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == 'redismem: Unknown command "sesions". Did you mean "sessions"? (see redismem --help)\n'
    assert command("--sesions").err == 'redismem: Unknown option "--sesions". (see redismem --help)\n'


def test_the_overview_fits_the_terminal(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        ran = command("--help")
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= columns
        assert " ".join(HELP_OF["worker"].split()) in " ".join(ran.out.split())


def test_the_help_lists_the_first_line_of_each_docstring() -> None:
    for name, where in FUNCTIONS.items():
        if isinstance(where, str):
            assert app[name].help.partition("\n\n")[0].replace("\n", " ") == HELP_OF[name]


def test_version(command: Any) -> None:
    assert command("--version").out.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shw"], "shw"),
        (["show"], "SESSION"),
        (["show", "a", "b"], "b"),
        (["show", "bad "], "session id"),
        (["sessions", "--limit", "0"], "--limit"),
        (["sessions", "--limit", "many"], "--limit"),
        (["sessions", "--cursor", "foreign"], "cursor"),
        (["sessions", "--namespace", "a b"], "namespace"),
        (["sessions", "--nonsense"], "--nonsense"),
        (["replay", "/does/not/exist.jsonl"], "there is no file /does/not/exist.jsonl"),
        (["replay", __file__, "--keep"], "--keep needs a store"),
        (["replay", "/dev/null"], "is not a regular file"),
        (["replay", __file__, "--concurrency", "0"], "--concurrency"),
        (["worker", "--strategy", "forget"], "--strategy"),
        (["worker", "--concurrency", "0"], "--concurrency"),
        (["worker", "--on-evict-file", "/does/not/exist/file"], "/does/not/exist/file"),
        (["watch", "--count", "0"], "--count"),
        (["dead", "bury"], "bury"),
        (["dead", "retry"], "--all"),
        (["dead", "drop", "a", "--all"], "--all"),
        (["dead", "retry", "bad "], "session id"),
        (["check", "--limit", "0"], "--limit"),
        (["quarantine", "burn"], "burn"),
        (["quarantine", "show"], "SESSION"),
        (["quarantine", "list", "--limit", "0"], "--limit"),
        (["quarantine", "restore", "a", "--at", "soon"], "--at"),
        (["quarantine", "drop", "bad "], "session id"),
        (["namespaces", "--keys", "0"], "--keys"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(command: Any, words: Any, said: Any) -> None:
    ran = command(*words)
    assert ran.code == 2
    *_, line = ran.err.splitlines()  # after the note that an embedded store is empty
    assert ran.out == ""
    assert line.startswith("redismem: ")
    assert said in line


@pytest.mark.parametrize(
    "url",
    ["localhost:6379", "http://:geheim@h:1", "redis://:gehe/im@h:1", "redis://u:gehe?im@h:1", "redis://:x@h:gehe"],
)
def test_an_unusable_url_is_not_repeated(command: Any, url: Any) -> None:
    for words in (["sessions"], ["doctor"], ["demo"]):
        ran = command(*words, "--url", url)
        assert ran.code == 2
        assert "redis://user:password@host:6379/0" in ran.error_line
        assert "gehe" not in ran.err


NEEDS_REDIS = [
    ["sessions"],
    ["show", "a"],
    ["clear", "a"],
    ["demo"],
    ["replay", __file__],
    ["import", "langchain"],
    ["worker"],
    ["worker", "--once"],
    ["queues"],
    ["watch"],
    ["dead", "list"],
    ["dead", "retry", "a"],
    ["check"],
    ["quarantine", "list"],
    ["quarantine", "restore", "a"],
    ["namespaces"],
    ["deploy"],
]


@pytest.mark.parametrize("words", NEEDS_REDIS)
def test_an_unreachable_redis_is_one_line_and_code_1(command: Any, monkeypatch: pytest.MonkeyPatch, words: Any) -> None:
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "0.05")
    port = free_port()
    ran = command(*words, "--url", f"redis://user:geheim@127.0.0.1:{port}/3")
    assert ran.code == 1
    assert f"redis://127.0.0.1:{port}/3: " in ran.error_line
    assert "geheim" not in ran.err


def test_the_url_option_overrides_the_url_of_the_environment(
    command: Any, monkeypatch: pytest.MonkeyPatch, used_options: list[str]
) -> None:
    monkeypatch.setenv("REDISMEM_URL", f"redis://127.0.0.1:{free_port()}/0")
    with monkeypatch.context() as patch:
        patch.setenv("REDISMEM_DEADLINE_S", "0.05")
        assert command("sessions").code == 1
    assert command("sessions", *used_options).code == 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://h", "redis://h"),
        ("rediss://user:geheim@h:1/2?ssl_cert_reqs=none", "rediss://h:1/2"),
        ("redis://:geheim@[::1]:7/0", "redis://[::1]:7/0"),
        ("unix://user:geheim@/run/redis.sock?db=1&password=geheim", "unix:///run/redis.sock"),
        ("redis+cluster://user:geheim@a:1,b:2?protocol=3", "redis+cluster://a:1,b:2"),
        ("rediss+sentinel://:geheim@a,[::1]:2/chats/0?sentinel_password=geheim", "rediss+sentinel://a,[::1]:2/chats/0"),
        ("redis+cluster://gehe,im/@a:1,b:2", "redis+cluster://…"),
        ("redis+cluster://:gehe,im:#@a:1,b:2", "the given URL"),
        ("redis+cluster://a:geheim,b:2", "the given URL"),
        ("redis+sentinel://a:1/chats/0", "redis+sentinel://a:1/chats/0"),
        ("redis://gehe#im@h:1", "redis://…"),
        ("redis://gehe/im@h:1", "redis://…"),
        ("redis://:gehe/im@h:1", "the given URL"),
    ],
)
def test_a_url_is_shown_without_its_password(url: Any, shown: Any) -> None:
    assert safe_url(url) == shown


def test_uvloop_is_not_needed(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert command("demo").code == 0


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "redismem", "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        errors = running.stderr.read()
    assert errors == b""


def run_on_terminal(*words: str, **environment: str) -> str:
    """Run a command on a pseudo-terminal and return its output."""
    controller, terminal = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "redismem", *words], env=env | environment, stdout=terminal, stderr=terminal
    ) as running:
        os.close(terminal)
        printed = b""
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            printed += piece
    os.close(controller)
    assert running.returncode == 0
    return printed.decode()


def test_a_terminal_gets_colours() -> None:
    assert COLOURS.search(run_on_terminal("demo"))


def test_watch_on_a_terminal_refreshes_in_place_and_has_no_colours_with_no_color(used_options: list[str]) -> None:
    words = ("watch", "--count", "3", "--every-s", "0.05", *used_options)
    printed = run_on_terminal(*words, COLUMNS="80", NO_COLOR="1")
    assert "\x1b[1A" in printed  # moves the cursor up to overwrite the last table
    assert printed.count("overdue") >= 3
    assert not COLOURS.search(printed)
