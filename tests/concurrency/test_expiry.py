"""Old entries are dropped by a thread, which ends with the last entry or with the cache."""

from __future__ import annotations

import gc
import os
import threading
import weakref

from support.checks import until

from redismem.concurrency import expiry
from redismem.concurrency.expiry import Expiry


class Entries:
    """Entries of which each call drops one. `is_empty` is set by the last one."""

    def __init__(self, count: int, after_s: float = 0.01) -> None:
        self.count = count
        self.is_empty = threading.Event()
        self.expiry = Expiry(self.drop, after_s)
        self.lock = threading.Lock()

    def start(self) -> None:
        with self.lock:
            self.expiry.start()

    def drop(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count:
                self.expiry.start_again()
            else:
                self.expiry.stop()
                self.is_empty.set()


def test_it_is_called_until_no_entry_is_left_and_begins_again() -> None:
    entries = Entries(3)
    for _ in range(2):
        with entries.lock:
            entries.expiry.start()
            entry = entries.expiry.entry
            entries.expiry.start()
            assert entries.expiry.entry is entry, "one call"
        assert entries.is_empty.wait(60)
        assert entries.count == 0
        entries.count = 2
        entries.is_empty.clear()


def test_a_stopped_one_is_not_called_and_one_thread_serves_many_caches() -> None:
    stopped, others = Entries(3), [Entries(3, after_s=0.02) for _ in range(20)]
    with stopped.lock:
        stopped.expiry.start()
        stopped.expiry.stop()
    for entries in others:
        entries.start()
    # The thread of an earlier test may still be ending.
    assert sum(thread.name == "redismem-expiry" for thread in threading.enumerate()) <= 2
    for entries in others:
        assert entries.is_empty.wait(60)
    assert stopped.count == 3


async def test_it_keeps_no_cache_alive() -> None:
    entries = Entries(1 << 40)
    entries.start()
    alive = weakref.ref(entries)
    del entries

    def is_gone() -> bool:
        gc.collect()
        return alive() is None

    await until(is_gone)


def test_calls_of_caches_that_are_empty_or_gone_do_not_pile_up() -> None:
    waiting, again = Entries(1, after_s=0.5), Entries(1, after_s=600)
    waiting.start()
    for _ in range(2_000):
        Entries(1, after_s=600).start()
        with again.lock:
            again.expiry.start()
            again.expiry.stop()
    assert len(expiry._calls._entries) < 200
    assert waiting.is_empty.wait(60), "it lost its call to them"


def test_a_forked_process_begins_its_own() -> None:
    entries = Entries(2, after_s=600)
    entries.start()
    child = os.fork()
    if child == 0:
        entries.expiry._after_s = 0.01
        entries.start()
        os._exit(0 if entries.is_empty.wait(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert entries.count == 2, "the parent's"
