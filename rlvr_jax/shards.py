"""Several drivers of one store: each takes the tasks of its own shard.

The tasks of a store have numbers; shard i of n has those that leave the remainder i - 1 when divided by n.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rlvr_jax.types import InvalidInput


def _alone(moment: str) -> None:
    """Nobody to wait for."""


@dataclass(frozen=True)
class Shard:
    """One of the drivers of a store.

    Attributes:
      number: From 1 to ``count``.
      count: How many there are.
      meet: Waits until all of them have come to a moment, where a launcher has started them together.
    """

    number: int
    count: int
    meet: Callable[[str], object] = field(default=_alone, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard ``i/n``.

        Raises:
          InvalidInput: If it is none.

        >>> Shard.parse("2/8")
        Shard(number=2, count=8)
        """
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise InvalidInput(f"shard is {text!r}; it must be i/n with i from 1 to n, such as 1/4")
        return cls(int(found[1]), int(found[2]))

    def holds(self, task: int) -> bool:
        """Whether a task is one of its own."""
        return task % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"
