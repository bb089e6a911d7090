"""What holds for all tests: JAX's strict modes, one device for each core, a compile cache away from the user's own."""

import gc
import getpass
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault(
    "RLVR_JAX_COMPILE_CACHE", str(Path(tempfile.gettempdir()) / f"rlvr_jax-tests-{getpass.getuser()}" / "compiled")
)

from rlvr_jax import devices  # noqa: I001  (before JAX: importing it asks for one device for each core)
import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
devices.use_compile_cache()


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_module() -> Iterator[None]:
    """Programs are dropped after each file: a process can map only so many, see `rlvr_jax.engine.MOST_COMPILED`."""
    yield
    from rlvr_jax import engine

    engine._compiled.clear()
    jax.clear_caches()
    gc.collect()
