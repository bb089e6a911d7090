"""The registry of worlds. To add one, write its module and a row here."""

from rlvr_jax import arithmetic_world, bandit
from rlvr_jax.grid import nearest
from rlvr_jax.types import InvalidInput, World

WORLDS: dict[str, World] = {world.name: world for world in (bandit.WORLD, arithmetic_world.WORLD)}


def world(name: str) -> World:
    """The registry's row of ``name``.

    Raises:
      InvalidInput: If there is none; the message lists the known names.
    """
    if not isinstance(name, str) or name not in WORLDS:
        raise InvalidInput(f"world is {name!r}; {nearest(name, WORLDS)}")
    return WORLDS[name]
