"""What happens in a worker: a process that trains tasks for a driver elsewhere.

An order is small and says where the store is; the results go into the store, and only the receipt goes back. JAX is
imported when the first order comes, after the worker has been told which devices are its own.
"""

import os
import platform
import signal
import threading
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

from rlvr_jax import devices
from rlvr_jax.devices import Machine
from rlvr_jax.receipts import Receipt
from rlvr_jax.types import InvalidInput

#: A process trains one task at a time: two threads would compile the same program twice.
_busy = threading.Lock()


@dataclass(frozen=True)
class Order:
    """One task for a worker.

    Attributes:
      store: The store, as the worker finds it.
      task: The number of the task.
      memory: Bytes that a call may take.
      devices: XLA devices that the worker uses.
      origin: What the worker must be, as `Machine.origin`; empty for anything.
    """

    store: Path
    task: int
    memory: int
    devices: int
    origin: str


def work(order: Order) -> Receipt:
    """Trains a task and writes its chunk and its receipt into the store.

    Raises:
      InvalidInput: If the store is not there or cannot be written, or if this is another kind of machine.
    """
    with _busy:
        devices.request_host_devices(order.devices, alone=False)
        from rlvr_jax.session import run_task

        try:
            here = devices.machine_of(order.devices).origin
            if order.origin not in ("", here):
                raise InvalidInput(
                    f"a worker is {here}, and the first one is {order.origin}, where the last bits may differ; use "
                    "workers of one kind, or allow both (--mixed)"
                )
            return run_task(order.store, order.task, order.memory, order.devices)
        except InvalidInput as error:
            raise InvalidInput(f"{error} (said by a worker on {platform.node()})") from None


def machine(count: int) -> Machine:
    """What this worker has, if it uses ``count`` devices."""
    with _busy:
        devices.request_host_devices(count, alone=False)
        return devices.machine_of(count)


def start(count: int, places: Any) -> None:
    """Prepares a process that this package has spawned.

    Args:
      count: XLA devices that it uses.
      places: A queue of numbers from 0 on; the one that is taken says which accelerators are this worker's.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes; the driver decides
    threading.Thread(target=_follow, daemon=True).start()
    own_accelerators(count, places.get())


def own_accelerators(count: int, place: int) -> None:
    """Leaves to this process the accelerators of its place, of those that the environment lets it see."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(place * count + i) for i in range(count)] if seen is None else seen.split(",")[place * count :][:count]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    devices.request_host_devices(count, alone=False)


def _follow() -> None:
    """Ends this process when its driver has died, however that died."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
