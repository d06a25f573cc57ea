"""The common behaviour of all commands: help, exit codes, one-line errors, colours and pipes."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import wait_for_exit, wait_for_line
from support.forks import start_fresh
from support.redis_server import free_port
from support.transcripts import chat, write

from redismem.blocking import Memory as BlockingMemory
from redismem.cli.app import app
from redismem.cli.commands import COMMANDS, DEFAULT_KINDS, HELP_OF, MOVED
from redismem.cli.place import safe_url

COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-9]")
GROUPS = [name for name, kinds in COMMANDS.items() if not isinstance(kinds, str)]
# Each command and kind, with the arguments that it needs.
LINES = {
    "serve": ["--port", "0"],
    "worker": ["--once"],
    "key": ["app"],
    "demo": [],
    **{f"list {kind}": [] for kind in COMMANDS["list"]},
    **{f"show {kind}": ["a"] for kind in COMMANDS["show"]},
    "search": ["hotel"],
    **{f"project {kind}": ["a"] for kind in ("decisions", "tasks", "entities", "consolidate")},
    "project history": ["a", "dec-1"],
    "project export": ["a", "/nowhere"],
    "project import": ["a", "FOLDER"],
    "status": [],
    "doctor": ["--deep"],
    "bench": ["--seconds", "0.1"],
    "tune": ["FOLDER/chats.jsonl"],
    "import": ["langchain"],
    **{f"remove {kind}": ["1", "--yes"] for kind in COMMANDS["remove"]},
    **{f"repair {kind}": [] if kind == "scripts" else ["a"] for kind in COMMANDS["repair"]},
}
WITHOUT_REDIS = {"key", "list settings"}
NO_NAMESPACE = {"bench", "tune", "list namespaces", "list settings", "repair scripts"}


@pytest.fixture
def line_of(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return a function that returns a complete command line of a command."""
    (tmp_path / "tasks.json").write_text("{}")
    write(tmp_path / "chats.jsonl", chat("a"))
    return lambda path: [*path.split(), *(word.replace("FOLDER", str(tmp_path)) for word in LINES[path])]


def test_there_are_fifteen_commands_and_a_line_for_each_kind() -> None:
    paths = [name for name, kinds in COMMANDS.items() if isinstance(kinds, str)]
    paths += [f"{name} {kind}" for name in GROUPS for kind in COMMANDS[name]]
    assert (len(COMMANDS), sorted(paths)) == (15, sorted(LINES))


def test_the_first_help_lists_every_command(command: Any) -> None:
    for words in ([], ["--help"], ["-h"]):
        ran = command(*words)
        assert (ran.code, ran.err) == (0, "")
        assert all(re.search(rf"^  {name} +[A-Z]", ran.out, re.MULTILINE) for name in COMMANDS)
        assert not any(re.search(rf"^  {name} ", ran.out, re.MULTILINE) for name in MOVED)
        assert "REDISMEM_URL" in ran.out


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_command_lists_its_kinds(command: Any, group: str) -> None:
    ran = command(group, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert all(re.search(rf"│ {kind} +[A-Z]", ran.out) for kind in COMMANDS[group])
    if group in DEFAULT_KINDS:
        assert f"\n\nredismem {group} {DEFAULT_KINDS[group]} --help" in ran.out
    else:
        assert command(group).out == ran.out


@pytest.mark.parametrize("path", LINES)
def test_every_command_has_a_help_with_the_common_options(command: Any, path: str) -> None:
    ran = command(*path.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "--url" in ran.out or path in WITHOUT_REDIS
    assert "--json" in ran.out or path in {"demo", "key", "project export", "project import"}
    assert "--namespace" in ran.out or path in NO_NAMESPACE
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("path", LINES)
def test_wrong_words_are_wrong_usage(command: Any, line_of: Any, path: str) -> None:
    """Options are never positional: a name without its option is refused, with the way to give it."""
    ran = command(*line_of(path), "--nonsense")
    assert ran.code == 2
    assert "--nonsense" in ran.error_line
    if path not in ("search", "repair dead", "remove dead", "import", "bench"):  # words, sessions, or a file
        ran = command(*line_of(path), "shop")
        assert ran.code == 2
        assert " takes " in ran.error_line
        assert ("--namespace shop" in ran.error_line) == (path not in NO_NAMESPACE)


@pytest.mark.parametrize("path", [path for path in LINES if path not in WITHOUT_REDIS])
def test_an_unreachable_redis_is_one_line_and_code_3(
    command: Any, line_of: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "0.05")
    port = free_port()
    ran = command(*line_of(path), "--url", f"redis://user:geheim@127.0.0.1:{port}/3")
    assert ran.code == 3
    printed = ran.out if path == "doctor" else ran.error_line
    assert f"redis://127.0.0.1:{port}/3" in printed
    assert "geheim" not in ran.out + ran.err


@pytest.mark.parametrize("old", MOVED)
def test_an_earlier_name_says_the_present_one(command: Any, old: str) -> None:
    ran = command(*old.split(), "x")
    assert (ran.code, ran.out) == (2, "")
    start, _, line = ran.error_line.partition(" is now: redismem ")
    assert start == f"redismem: redismem {old}"
    assert line == f"{MOVED[old]} x"
    assert "geheim" not in command(*old.split(), "--url", "redis://:geheim@h:1").err


def test_ctrl_c_ends_a_question(used_options: list[str]) -> None:
    with BlockingMemory.connect(used_options[1], namespace=used_options[3]) as memory:
        memory.session("a").append({"role": "user", "content": "x"})
        controller, terminal = pty.openpty()
        words = [sys.executable, "-m", "redismem", "remove", "a", *used_options]
        with subprocess.Popen(words, stdin=terminal, stderr=subprocess.PIPE, start_new_session=True) as asking:
            assert asking.stderr is not None
            while not (told := asking.stderr.read1()).endswith(b"[y/N] "):  # type: ignore[attr-defined]
                assert told
            asking.send_signal(signal.SIGINT)
            assert asking.wait(60) == 130
        os.close(controller)
        os.close(terminal)
        assert memory.session("a").exists()


def test_the_question_of_a_search_comes_first_now(command: Any) -> None:
    ran = command("recall", "user-42", "Where is it?", "--limit", "3")
    assert ran.err.endswith("is now: redismem search 'Where is it?' --session user-42 --limit 3\n")


def test_without_a_terminal_a_removal_needs_yes(
    command: Any, redis_options: list[str], line_of: Any, tmp_path: Path, namespace: str
) -> None:
    with BlockingMemory.connect(redis_options[1], namespace=namespace) as memory:
        memory.session("1", owner="1").append({"role": "user", "content": "x"})
        memory.project("a").tasks.create("Move")
        for path in ("remove session", "remove owner", "remove prefix", "remove dead", "remove dictionary"):
            ran = command(*path.split(), "1", *redis_options)
            assert (ran.code, "confirm with --yes" in ran.error_line) == (2, True)
        assert command("project", "export", "a", tmp_path, *redis_options).code == 2, "the fixture's file is there"
        assert command("project", "export", "a", tmp_path, "--yes", *redis_options).code == 0
        for words in (["project", "import", "a", tmp_path], ["import", "langchain"]):
            ran = command(*words, "--replace", *redis_options)
            assert (ran.code, "confirm with --yes" in ran.error_line) == (2, True)
        assert command("worker", "--once", "--override", *redis_options).code == 2
        assert memory.session("1").exists()


def test_lines_that_came_with_the_one_that_was_read_are_not_lost() -> None:
    with start_fresh("redismem", "--help") as running:
        assert wait_for_line(running.stdout, "Session memory")
        ended = wait_for_exit(running)
    assert (ended.code, ended.err) == (0, "")
    assert "REDISMEM_URL" in ended.out


def test_without_a_command_no_library_is_loaded() -> None:
    """They answer in a tenth of the time that the libraries of the commands take to load."""
    code = (
        "import sys; before = set(sys.modules); from redismem.cli import main; "
        "[main(words) for words in (['--help'], [], ['--version'], ['serch'], ['queues'])]; "
        "loaded = set(sys.modules) - before; names = {name.partition('.')[0] for name in loaded}; "
        "print(sorted(names - sys.stdlib_module_names), sorted(names & {'asyncio', 'logging', 'ssl'}), "
        "sorted(name for name in loaded if name.startswith('redismem.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cli = ["redismem.cli.commands", "redismem.cli.overview", "redismem.cli.streams"]
    assert done.stdout.splitlines()[-1] == f"['redismem'] [] {cli}"


def test_an_unknown_command_is_answered_with_the_one_most_alike(command: Any) -> None:
    ran = command("serch")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == 'redismem: Unknown command "serch". Did you mean "search"? (see redismem --help)\n'
    for word in ("help", "version"):
        assert f'Did you mean "--{word}"?' in command(word).error_line
    assert command("--serch").err == 'redismem: Unknown option "--serch". (see redismem --help)\n'


def test_the_overview_fits_the_terminal(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        ran = command("--help")
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= columns
        assert " ".join(HELP_OF["worker"].split()) in " ".join(ran.out.split())


def test_the_help_lists_the_first_line_of_each_docstring() -> None:
    for name, where in COMMANDS.items():
        if isinstance(where, str):
            assert app[name].help.partition("\n\n")[0].replace("\n", " ") == HELP_OF[name]


def test_version(command: Any) -> None:
    assert command("--version").out.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shw"], "shw"),
        (["show"], "SESSION"),
        (["search", " "], "words"),
        (["show", "bad "], "session id"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--limit", "many"], "--limit"),
        (["list", "--cursor", "foreign"], "cursor"),
        (["list", "--namespace", "a b"], "namespace"),
        (["tune", "/does/not/exist.jsonl"], "there is no file /does/not/exist.jsonl"),
        (["tune", __file__], "line 1: not JSON"),
        (["tune", "/dev/null"], "is not a regular file"),
        (["tune", __file__, "--keep", "2"], "--keep"),
        (["worker", "--strategy", "forget"], "--strategy"),
        (["worker", "--concurrency", "0"], "--concurrency"),
        (["worker", "--on-evict-file", "/does/not/exist/file"], "/does/not/exist/file"),
        (["status", "--count", "0"], "--count"),
        (["status", "--count", "1"], "--watch"),
        (["status", "--watch", "--shards"], "--shards"),
        (["list", "sesions"], "sessions, records"),
        (["list", "owner", "ada b"], "did you mean: redismem list sessions --owner 'ada b'"),
        (["search"], "give words to find"),
        (["serve", "--http"], "--http needs --mcp"),
        (["serve", "--mcp", "--demo"], "not for --mcp"),
        (["search", "a", "--owner", "a", "--session", "b"], "one of"),
        (["repair", "dead", "bad "], "session id"),
        (["repair", "burn"], "burn"),
        (["show", "quarantine"], "SESSION"),
        (["repair", "quarantine", "a", "--at", "soon"], "--at"),
        (["remove", "quarantine", "bad "], "session id"),
        (["list", "namespaces", "--keys", "0"], "--keys"),
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
    for words in (["list"], ["doctor"], ["demo"]):
        ran = command(*words, "--url", url)
        assert ran.code == 2
        assert "redis://user:password@host:6379/0" in ran.error_line
        schemes = [ran.error_line.count(f" {name}://") for name in ("rediss", "valkey", "unix", "redis+cluster")]
        assert schemes == [int("must begin with" in ran.error_line)] * 4
        assert "gehe" not in ran.err


def test_the_url_option_overrides_the_url_of_the_environment(
    command: Any, monkeypatch: pytest.MonkeyPatch, used_options: list[str]
) -> None:
    monkeypatch.setenv("REDISMEM_URL", f"redis://127.0.0.1:{free_port()}/0")
    with monkeypatch.context() as patch:
        patch.setenv("REDISMEM_DEADLINE_S", "0.05")
        assert command("list").code == 3
    assert command("list", *used_options).code == 0


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
    words = ("status", "--watch", "--count", "3", "--every-s", "0.05", *used_options)
    printed = run_on_terminal(*words, COLUMNS="80", NO_COLOR="1")
    assert "\x1b[1A" in printed  # moves the cursor up to overwrite the last table
    assert printed.count("overdue") >= 3
    assert not COLOURS.search(printed)
