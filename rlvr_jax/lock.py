"""One driver for each store, or one for each shard of it: who holds it, since when, and whether that process lives.

A driver of the whole store holds ``lock.json`` alone. Drivers of shards share it while they train, and each holds a
file of its own beside it; what has to be declared is declared by one of them while it holds ``lock.json`` alone.
"""

import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from rlvr_jax.files import read_json
from rlvr_jax.shards import Shard
from rlvr_jax.types import InvalidInput

#: Seconds for which the driver of a shard waits until another one has declared the store, and between two looks.
PATIENCE, LOOK_EVERY = 600.0, 0.05


@dataclass(frozen=True)
class Holder:
    """A process that writes a store.

    Attributes:
      host: Its machine's name.
      pid: Its number there.
      started: What tells it apart from a later process of the same number; empty where the system does not say.
      since: When it took the store, local time.
      shard: Which shard of it, if not all.
    """

    host: str
    pid: int
    started: str
    since: str
    shard: str = ""

    @classmethod
    def this_process(cls, shard: Shard | None = None) -> "Holder":
        """The process that asks."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        return cls(platform.node(), os.getpid(), _started(os.getpid()), now, "" if shard is None else str(shard))

    @property
    def here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == platform.node()

    @property
    def alive(self) -> bool:
        """Whether it still runs; of a process of another machine that cannot be seen, and is assumed."""
        if not self.here:
            return True
        return running(self.pid) and (not self.started or _started(self.pid) == self.started)

    def __str__(self) -> str:
        shard = f", shard {self.shard}" if self.shard else ""
        return f"process {self.pid} on {self.host} since {self.since}{shard}"


def running(pid: int) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def holder(path: Path) -> Holder | None:
    """Who holds the lock file, if anybody who still lives."""
    content = read_json(path)
    try:
        found = Holder(**content)
    except TypeError:  # nobody, or a file cut short by a crash, whose writer is dead
        return None
    if type(found.pid) is not int or not 0 < found.pid < 2**31 or not isinstance(found.shard, str):
        return None  # no process has such a number
    return found if found.alive else None


def holders(path: Path) -> list[Holder]:
    """Who holds the lock file or a shard's beside it, of those who still live."""
    found = [holder(file) for file in (path, *sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")))]
    return [each for each in found if each is not None]


class Hold:
    """What a driver holds.

    Attributes:
      alone: Whether no other driver holds any of the store, so that it may be changed as a whole.
    """

    def __init__(self, alone: bool, main: int, shard: Shard | None):
        self.alone, self._main, self._shard = alone, main, shard

    def share(self) -> None:
        """Lets drivers of other shards come, where this is one of a shard.

        Raises:
          InvalidInput: If another driver holds the store in between, and does not let go.
        """
        if self._shard is None or not self.alone:
            return
        self.alone = False
        _fill(self._main, "")
        until = time.monotonic() + PATIENCE
        while _locked(self._main, fcntl.LOCK_SH) is False:
            if time.monotonic() > until:
                raise InvalidInput("another driver has taken the store meanwhile; wait for it, or stop it")
            time.sleep(LOOK_EVERY)


@contextmanager
def held(path: Path, store: Path, *, shard: Shard | None = None, take: bool = False) -> Iterator[Hold]:
    """Holds the lock file at ``path`` for this process, until the block is left or the process dies.

    The operating system gives the lock back when its process dies, however it dies; the file's content only says who
    that was. The lock of a dead process of this machine is taken over. Whether a process of another machine lives
    cannot be seen: that lock is refused unless ``take`` is set.

    Raises:
      InvalidInput: If another process holds it, or the same shard, or shards that are cut in another way.
    """
    with ExitStack() as stack:
        main = stack.enter_context(_opened(path))
        if shard is None:
            got = _locked(main, fcntl.LOCK_EX)
            if got is False:
                raise InvalidInput(f"{store} is being written by {_who(path)}; wait for it, or stop it")
            _refuse_strangers(holders(path), store, got, take)
            hold = Hold(True, main, None)
        else:
            got = _come(main, path, store)
            own = path.with_name(f"{path.stem}-{shard.number}-of-{shard.count}{path.suffix}")
            seat = stack.enter_context(_opened(own))
            if _locked(seat, fcntl.LOCK_EX) is False:
                raise InvalidInput(f"shard {shard} of {store} is being written by {_who(own)}; wait for it, or stop it")
            _refuse_strangers([each for each in (holder(path), holder(own)) if each is not None], store, got, take)
            others = [each for each in holders(path) if each.shard not in ("", str(shard))]
            cut = {each.shard.partition("/")[2] for each in others} - {str(shard.count)}
            if cut:
                raise InvalidInput(f"{store} is being written in {cut.pop()} shards by {others[0]}; shard is {shard}")
            _fill(seat, json.dumps(asdict(Holder.this_process(shard))))
            stack.callback(_fill, seat, "")
            hold = Hold(got is not False and (take or not others), main, shard)
        if hold.alone:
            _fill(main, json.dumps(asdict(Holder.this_process(shard))))
        try:
            yield hold
        finally:
            if hold.alone:
                _fill(main, "")


def _come(main: int, path: Path, store: Path) -> bool | None:
    """Gets the main lock for a shard: alone (True, or None where there are no locks), or with others (False)."""
    until = time.monotonic() + PATIENCE
    while True:
        got = _locked(main, fcntl.LOCK_EX)
        if got is not False:
            return got
        if _locked(main, fcntl.LOCK_SH):
            return False
        other = holder(path)
        if (other is not None and not other.shard) or time.monotonic() > until:
            raise InvalidInput(f"{store} is being written by {_who(path)}; wait for it, or stop it")
        time.sleep(LOOK_EVERY)


def _refuse_strangers(others: list[Holder], store: Path, got: bool | None, take: bool) -> None:
    # who lives here and has lost the lock has left the block; who lives elsewhere may not share locks
    strangers = [other for other in others if not other.here or got is None]
    if strangers and not take:
        raise InvalidInput(f"{store} is being written by {strangers[0]}; if that process is dead, add --take-lock")


def _who(path: Path) -> str:
    return " and ".join(map(str, holders(path))) or "another process"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool | None:
    """Whether the system gave the lock; None on a file system without locks, where the content decides."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


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
