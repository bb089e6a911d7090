"""What the machine gives: one XLA device for each core, memory, and a compile cache that survives the process.

Importing `rlvr_jax` asks for the devices; nothing here starts a backend until a sweep needs it.
"""

import hashlib
import os
import platform
import re
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:  # `jax.Device` is this class; a checker takes that name for a variable
    from jaxlib._jax import Device

#: Where compiled programs are kept; "off" keeps none.
CACHE_VARIABLE = "RLVR_JAX_COMPILE_CACHE"

#: Shorter compilations than this are not worth a file, seconds.
CACHED_FROM = 0.1


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Machine:
    """What a process has to train with.

    Attributes:
      host: Its machine's name.
      kind: Of its devices.
      processor: What tells kinds of processors apart where those are the devices; see `processor`.
      devices: How many of them it uses.
      jaxlib: The version.
      free: Bytes that a compiled program could have on them.
    """

    host: str
    kind: str
    processor: str
    devices: int
    jaxlib: str
    free: int

    @property
    def origin(self) -> str:
        """What equal bits need to have in common, in words."""
        return origin(self.kind, self.processor, self.jaxlib)


def origin(kind: str, processor: str, jaxlib: str) -> str:
    """What equal bits need to have in common, in words."""
    return f"{kind}{f' ({processor})' if processor else ''} with jaxlib {jaxlib}"


def check_count(count: int) -> None:
    """Refuses, before JAX starts, a number of devices that no machine has and that would take all of its memory.

    Raises:
      InvalidInput: If it is above 64 and above four for each core.
    """
    most = max(64, 4 * cores())
    if count > most:
        raise InvalidInput(f"devices is {count}; it must be at most {most} on this machine, which has {cores()} cores")


def request_host_devices(count: int | None = None, alone: bool = True) -> None:
    """Asks JAX for one CPU device for each core, unless the user has said how many; or for ``count`` of them.

    One device uses one core for most of what a sweep does. The number must be known before JAX's backend starts: it
    goes through the environment where JAX is not imported yet, and through its configuration where it is.

    Args:
      count: How many.
      alone: Whether this process has the machine for itself. If not, XLA gets a thread for each device: with one for
        each core of the machine, a device is a tenth faster and takes most of a second core, from its neighbours.
    """
    if count is None and _said():
        return
    if count is not None:  # JAX refuses to be told in both ways
        flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
        if flags:
            os.environ["XLA_FLAGS"] = flags.strip()
    if "jax" not in sys.modules:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(count or cores())
    else:
        import jax

        if count is not None or _option("jax_num_cpu_devices") in (None, -1):
            try:
                jax.config.update("jax_num_cpu_devices", count or cores())
            except RuntimeError:  # the backend has started; `check_devices` and `used` say so when it matters
                return
    if not alone:
        os.environ.setdefault("NPROC", str(count or cores()))  # what XLA calls it


def _option(name: str) -> Any:
    """The value of an option of JAX, by name: jax 0.10 gets its options at run time, where no checker sees them."""
    import jax

    return getattr(jax.config, name)


def used(count: int | None = None) -> "list[Device]":
    """The devices of this process that a sweep runs on: all, or the first ``count``.

    Raises:
      InvalidInput: If there are fewer.
    """
    import jax

    found = jax.local_devices()
    if count is not None and count > len(found):
        raise InvalidInput(
            f"devices is {count}, and this process has {len(found)} of the kind {found[0].device_kind!r}: ask for fewer"
        )
    return found[:count]


def machine_of(count: int | None = None) -> Machine:
    """What this process has; ``count`` is as in `used`."""
    from jaxlib.version import __version__ as jaxlib

    chosen = used(count)
    kind = chosen[0].device_kind
    return Machine(platform.node(), kind, processor(chosen[0]), len(chosen), jaxlib, free_call_memory())


def processor(device: "Device") -> str:
    """What tells kinds of processors apart, for which XLA compiles other code; empty if ``device`` is no processor."""
    return f"{platform.machine()}, features {_features()}" if device.platform == "cpu" else ""


def check_devices(count: int | None = None) -> None:
    """Warns of ``count`` CPU devices that share cores, and where JAX had been started before it could be asked.

    Raises:
      InvalidInput: If there are fewer.
    """
    import jax

    if used(count)[0].platform == "cpu" and count is not None and count > cores():
        warnings.warn(
            f"devices is {count}, and this process may use {cores()} cores: devices that share a core gain nothing",
            RuntimeWarning,
            stacklevel=3,
        )
    if jax.default_backend() == "cpu" and len(jax.local_devices()) == 1 < cores() and not _said():
        warnings.warn(
            f"JAX was started before rlvr_jax was imported and has 1 CPU device for {cores()} cores; "
            "import rlvr_jax before anything that uses JAX, and a sweep uses all cores",
            RuntimeWarning,
            stacklevel=3,
        )


def _said() -> bool:
    """Whether somebody has said how many CPU devices there are to be."""
    return "JAX_NUM_CPU_DEVICES" in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")


def use_compile_cache() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX has a cache already or it is switched off.

    The folder's name holds the machine's features and jaxlib's version: a program compiled for another processor may
    crash on this one. Set RLVR_JAX_COMPILE_CACHE to another folder, or to "off".
    """
    import jax

    wanted = os.environ.get(CACHE_VARIABLE, "")
    if wanted.lower() in ("off", "0", "none") or _option("jax_compilation_cache_dir") is not None:
        return
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    folder = Path(wanted) if wanted else Path(base) / "rlvr_jax" / "compiled"
    try:
        (folder / machine()).mkdir(parents=True, exist_ok=True)
    except OSError:
        if wanted:
            warnings.warn(f"{CACHE_VARIABLE} is {wanted!r}, which cannot be written", RuntimeWarning, stacklevel=3)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder / machine()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM)


def machine() -> str:
    """A short name of the processor's features and of jaxlib's version."""
    from jaxlib.version import __version__ as jaxlib

    about = f"{_features()} {platform.system()} {jaxlib} {sys.version_info[:2]}"
    return f"jaxlib-{jaxlib}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


@lru_cache(maxsize=1)
def _features() -> str:
    features = platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text()
        features += "".join(line for line in text.split("\n\n")[0].splitlines() if line.startswith(("flags", "model")))
    except OSError:
        features += platform.processor()
    return hashlib.sha256(features.encode()).hexdigest()[:8]


def free_memory() -> int:
    """Bytes of memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def free_call_memory() -> int:
    """Bytes that a compiled program could have, on all devices together: the machine's on a CPU."""
    import jax

    stats = [device.memory_stats() for device in jax.local_devices()]
    if jax.default_backend() == "cpu" or not all(stats):
        return free_memory()
    return sum(each["bytes_limit"] - each["bytes_in_use"] for each in stats)
