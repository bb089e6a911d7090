"""Processes that a launcher has started together (`jax.distributed`), as the shards of one run.

Each trains its own tasks on its own devices and writes its own chunks; nothing is computed across processes. The first
one declares the store before the others look at it, so that this also works on file systems whose locks are not shared,
and it speaks for all in the end. If one dies, JAX ends the others: start them again, and they go on.
"""

import os
import re
import sys

import jax

from rlvr_jax import ports
from rlvr_jax.shards import Shard
from rlvr_jax.types import InvalidInput

#: Seconds for which the process number 0 is waited for; JAX waits as long for the others.
PATIENCE = 300.0


def join(text: str) -> Shard:
    """Joins the processes that were started together; before JAX is used for anything else.

    Args:
      text: "auto" where Slurm, Open MPI or a TPU pod says who they are, or ``ADDRESS:PORT,PROCESSES,NUMBER`` with the
        address of the process number 0, where JAX opens that port.

    Returns:
      What this process does.

    Raises:
      InvalidInput: If that cannot be meant, or the others are not found.
    """
    found = re.fullmatch(r"([^\s,]+),(\d{1,6}),(\d{1,6})", text)
    place = ports.parsed(found[1]) if found else None
    if text != "auto" and (not found or not place or not int(found[3]) < int(found[2])):
        raise InvalidInput(
            f"distributed is {text!r}; it must be auto, or ADDRESS:PORT,PROCESSES,NUMBER with NUMBER from 0, such as "
            "10.0.0.1:8476,2,0"
        )
    if found and place:
        _expect(text, *place, int(found[3]))
    _keep_stdout()
    try:
        if found:
            jax.distributed.initialize(found[1], int(found[2]), int(found[3]))
        else:
            jax.distributed.initialize()
        return Shard(jax.process_index() + 1, jax.process_count(), meet)
    except (ValueError, RuntimeError) as error:
        if "coordinator_address should be defined" in str(error):
            raise InvalidInput(
                "distributed is 'auto', and no launcher says who is who, as Slurm and Open MPI do; give "
                "ADDRESS:PORT,PROCESSES,NUMBER"
            ) from None
        reason = " ".join(str(error).split())[:300]
        raise InvalidInput(f"distributed is {text!r}, and the processes did not find each other: {reason}") from None


def _expect(text: str, host: str, port: int, number: int) -> None:
    """Sees before JAX does, which would end the process, whether the first process can be where it is said to be."""
    if number == 0 and not ports.free(port):
        raise InvalidInput(f"distributed is {text!r}, and port {port} of this machine is taken; choose another one")
    reason = ports.silent(host, port, PATIENCE) if number > 0 else ""
    if reason:
        raise InvalidInput(f"distributed is {text!r}, and the process 0 is not at {host}:{port} ({reason})")


def meet(moment: str) -> None:
    """Waits until all processes have come to the moment of that name."""
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(moment)


def _keep_stdout() -> None:
    """Leaves stdout to Python: what connects the processes speaks to file 1 from threads of its own, at any time."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", buffering=1, encoding=sys.stdout.encoding)
    os.dup2(2, 1)
    sys.stdout = own
