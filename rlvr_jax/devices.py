"""What the machine gives: one XLA device for each core, memory, and a compile cache that survives the process.

Importing `rlvr_jax` asks for the devices; nothing here starts a backend until a sweep needs it.
"""

import hashlib
import os
import platform
import sys
import warnings
from pathlib import Path

#: Where compiled programs are kept; "off" keeps none.
CACHE_VARIABLE = "RLVR_JAX_COMPILE_CACHE"

#: Shorter compilations than this are not worth a file, seconds.
CACHED_FROM = 0.1


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def request_host_devices() -> None:
    """Asks JAX for one CPU device for each core, unless the user has said how many.

    One device uses one core for most of what a sweep does. The number must be known before JAX's backend starts: it
    goes through the environment where JAX is not imported yet, and through its configuration where it is.
    """
    if "JAX_NUM_CPU_DEVICES" in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if "jax" not in sys.modules:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(cores())
        return
    import jax

    if jax.config.jax_num_cpu_devices in (None, -1):
        try:
            jax.config.update("jax_num_cpu_devices", cores())
        except RuntimeError:  # the backend has started; `check_devices` says so when it matters
            return


def check_devices() -> None:
    """Warns where JAX had been started with one CPU device before `rlvr_jax` could ask for more."""
    import jax

    said = "JAX_NUM_CPU_DEVICES" in os.environ or "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.default_backend() == "cpu" and len(jax.devices()) == 1 < cores() and not said:
        warnings.warn(
            f"JAX was started before rlvr_jax was imported and has 1 CPU device for {cores()} cores; "
            "import rlvr_jax before anything that uses JAX, and a sweep uses all cores",
            RuntimeWarning,
            stacklevel=3,
        )


def use_compile_cache() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX has a cache already or it is switched off.

    The folder's name holds the machine's features and jaxlib's version: a program compiled for another processor may
    crash on this one. Set RLVR_JAX_COMPILE_CACHE to another folder, or to "off".
    """
    import jax

    wanted = os.environ.get(CACHE_VARIABLE, "")
    if wanted.lower() in ("off", "0", "none") or jax.config.jax_compilation_cache_dir is not None:
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
    import jaxlib

    features = f"{platform.machine()} {platform.system()} {jaxlib.__version__} {sys.version_info[:2]}"
    try:
        text = Path("/proc/cpuinfo").read_text()
        features += "".join(line for line in text.split("\n\n")[0].splitlines() if line.startswith(("flags", "model")))
    except OSError:
        features += platform.processor()
    return f"jaxlib-{jaxlib.__version__}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"


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
