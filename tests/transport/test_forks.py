"""A forked process keeps all files of its parent except the connections."""

from __future__ import annotations

import os
import socket

from redismem.concurrency import forks


def test_a_child_has_other_files_and_no_held_socket() -> None:
    here, there = socket.socketpair()
    dropped, other = socket.socketpair()
    gone, reused = socket.socketpair()
    held = forks.hold(here.fileno())
    forks.drop(forks.hold(dropped.fileno()))
    stale = forks.hold(gone.fileno())
    os.dup2(other.fileno(), gone.fileno())  # closed, and its number reused
    with here, there, dropped, other, gone, reused:
        child = os.fork()
        if child == 0:
            here_now, gone_now, dropped_now = (os.fstat(each.fileno()).st_ino for each in (here, gone, dropped))
            nothing = os.stat(os.devnull).st_ino
            is_let_go = here_now == nothing and gone_now == os.fstat(other.fileno()).st_ino and dropped_now != nothing
            os._exit(0 if is_let_go else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        there.sendall(b"x")
        assert here.recv(1) == b"x", "the parent's is as it was"
    forks.drop(held)
    forks.drop(stale)
