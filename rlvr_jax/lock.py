"""One driver for each store: who holds it, since when, and whether that process still lives."""

import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from rlvr_jax.files import read_json
from rlvr_jax.types import InvalidInput


@dataclass(frozen=True)
class Holder:
    """A process that writes a store.

    Attributes:
      host: Its machine's name.
      pid: Its number there.
      started: What tells it apart from a later process of the same number; empty where the system does not say.
      since: When it took the store, local time.
    """

    host: str
    pid: int
    started: str
    since: str

    @classmethod
    def this_process(cls) -> "Holder":
        """The process that asks."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        return cls(platform.node(), os.getpid(), _started(os.getpid()), now)

    @property
    def here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == platform.node()

    @property
    def alive(self) -> bool:
        """Whether it still runs; of a process of another machine that cannot be seen, and is assumed."""
        if not self.here:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return not self.started or _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


def holder(path: Path) -> Holder | None:
    """Who holds the lock file, if anybody who still lives."""
    content = read_json(path)
    try:
        found = Holder(**content)
    except TypeError:  # nobody, or a file cut short by a crash, whose writer is dead
        return None
    return found if found.alive else None


@contextmanager
def held(path: Path, store: Path, *, take: bool = False) -> Iterator[None]:
    """Holds the lock file at ``path`` for this process, until the block is left or the process dies.

    The operating system gives the lock back when its process dies, however it dies; the file's content only says who
    that was. The lock of a dead process of this machine is taken over. Whether a process of another machine lives
    cannot be seen: that lock is refused unless ``take`` is set.

    Raises:
      InvalidInput: If another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise InvalidInput(
                    f"{store} is being written by {holder(path) or 'another process'}; wait for it, or stop it"
                ) from None
            alone = False  # a file system without locks: the content decides
        other = holder(path)
        # who lives here and has lost the lock has left the block; who lives elsewhere may not share locks
        if other is not None and (not other.here or not alone) and not take:
            raise InvalidInput(f"{store} is being written by {other}; if that process is dead, add --take-lock")
        _fill(descriptor, json.dumps(asdict(Holder.this_process())))
        try:
            yield
        finally:
            _fill(descriptor, "")
    finally:
        os.close(descriptor)


def _fill(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _started(pid: int) -> str:
    """When a process started, in a form that no other process of that number has; empty if the system hides it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{boot} {stat.rpartition(')')[2].split()[19]}"
