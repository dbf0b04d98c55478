"""The condition that the projector and the indexer wait with: Ctrl-C at any line leaves it working."""

import threading

from mnemolog.infra.runtime import condition
from mnemolog.infra.runtime.condition import InterruptSafeCondition
from tests.interrupts import at_each_line
from tests.support import in_thread, wait_until


def test_an_interrupt_at_any_line_leaves_a_condition_that_works():
    """Of a thread that waits, and of one that notifies: the next change reaches all, and no lock is left taken."""
    for interrupted in at_each_line({condition.__file__}, more_than=10):
        changed, ready = InterruptSafeCondition(), threading.Event()

        def found(ready=ready):
            return True if ready.is_set() else None

        def change(changed=changed):
            with changed.mutex:
                changed.notify_all()

        def wait_and_notify(changed=changed, change=change, found=found):
            changed.wait_for(found, timeout_s=0.001)
            change()

        waiting = in_thread(lambda changed=changed, found=found: changed.wait_for(found, timeout_s=None))
        wait_until(lambda changed=changed: len(changed._gates) == 1, what="the thread that waits")
        interrupted(wait_and_notify)
        ready.set()
        in_thread(change).result(5)
        assert waiting.result(5) is True
        assert changed._gates == []


def test_waking_a_thread_twice_is_no_error():
    """An interrupt may have ended the first attempt halfway."""
    waiting, woken = threading.Lock(), threading.Lock()
    waiting.acquire()
    changed = InterruptSafeCondition()
    with changed.mutex:
        changed._gates += [woken, waiting]
        changed.notify_all()
    assert not waiting.locked()
