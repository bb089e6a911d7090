"""What holds for all tests: JAX's strict modes, one device for each core, a compile cache away from the user's own."""

import getpass
import os
import tempfile
from pathlib import Path

os.environ.setdefault(
    "RLVR_JAX_COMPILE_CACHE", str(Path(tempfile.gettempdir()) / f"rlvr_jax-tests-{getpass.getuser()}" / "compiled")
)

from rlvr_jax import devices  # noqa: I001  (before JAX: importing it asks for one device for each core)
import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
devices.use_compile_cache()
