"""Stops from outside: SIGTERM as Ctrl-C, and processes that end with the one that they work for."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Lets SIGTERM stop what is inside as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def follow_parent() -> None:
    """Leaves Ctrl-C to the process that started this one, and ends when that ends, however it does."""
    import multiprocessing  # here: the command line's help does without

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
