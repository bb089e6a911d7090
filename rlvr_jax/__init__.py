"""A vectorised sweep engine for reinforcement learning with verifiable rewards on two small, exact worlds.

    import rlvr_jax as rj
    results = rj.sweep("bandit", {"method": ["rloo", "grpo"], "seed": {"range": [0, 64]}}, steps=600, lr=0.5)

Modules and functions are loaded when they are first used, so that importing the package costs nothing and does not
import JAX; it only asks for one XLA device for each core (see `rlvr_jax.devices`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlvr_jax.devices import request_host_devices
from rlvr_jax.types import InvalidInput

if TYPE_CHECKING:
    from rlvr_jax import advantages, arithmetic, bandit, reference, stats, theory
    from rlvr_jax.bandit import pass_at_k
    from rlvr_jax.results import Interrupted, sweep
    from rlvr_jax.store import open_store

__all__ = [
    "Interrupted",
    "InvalidInput",
    "advantages",
    "arithmetic",
    "bandit",
    "open_store",
    "pass_at_k",
    "reference",
    "stats",
    "sweep",
    "theory",
]

_FUNCTIONS = {
    "Interrupted": "rlvr_jax.results",
    "open_store": "rlvr_jax.store",
    "pass_at_k": "rlvr_jax.bandit",
    "sweep": "rlvr_jax.results",
}

request_host_devices()


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    if name in __all__:
        return import_module(f"rlvr_jax.{name}")
    raise AttributeError(f"module 'rlvr_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
