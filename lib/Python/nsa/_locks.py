"""Locks that are open in a forked child."""

import os
import threading


def forkable_lock():
    """A lock that os.fork waits for: its holder would not exist in the child. To be made once, not for each object."""
    lock = threading.RLock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
