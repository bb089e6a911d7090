"""How seeds and cells lie in one program: W seeds side by side, each with C lanes, L = W * C in all.

A table of the world, such as the logits, is stored as ``[W * P, R, C]``: a row is one prompt of one seed, with the C
lanes of that seed. Arithmetic runs on ``[..., L]`` with L = c * W + w, so that the lanes of one method are one slice
whatever W is. With W = 1 both are the same and nothing is moved.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

#: Lanes are padded to full vectors: a narrower program would be evaluated by other kernels, in other bits.
VECTOR = 16


@dataclass(frozen=True)
class Layout:
    """Seeds, lanes and method blocks of one program; a static value.

    Attributes:
      seeds: W, seeds side by side.
      blocks: ``(method, lanes of one seed)`` in the order in which they lie; the lanes add up to C.
    """

    seeds: int
    blocks: tuple[tuple[str, int], ...]

    @property
    def lanes(self) -> int:
        """C, lanes of one seed."""
        return sum(lanes for _, lanes in self.blocks)

    @property
    def width(self) -> int:
        """L = W * C."""
        return self.seeds * self.lanes

    @property
    def slices(self) -> tuple[slice, ...]:
        """The place of each block in L."""
        slices, start = [], 0
        for _, lanes in self.blocks:
            slices.append(slice(start, start + lanes * self.seeds))
            start += lanes * self.seeds
        return tuple(slices)

    def spread(self, x: Array) -> Array:
        """A value for each seed ``[..., W]`` as one for each lane ``[..., L]``; for W = 1 it is left to broadcast."""
        if self.seeds == 1:
            return x
        whole = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], self.lanes, self.seeds))
        return whole.reshape((*x.shape[:-1], self.width))

    def rows(self, prompts: Array, population: int) -> Array:
        """Row numbers ``[W, B]`` of prompts ``[B, W]`` in a table of ``population`` rows a seed."""
        return (prompts + population * jnp.arange(self.seeds, dtype=prompts.dtype)[None]).T

    def gather(self, table: Array, rows: Array) -> Array:
        """Rows ``[W, B]`` of a table ``[W * P, R, c]`` as ``[B, R, c * W]``."""
        picked = table.at[rows.reshape(-1)].get(mode="promise_in_bounds", unique_indices=True)
        return self.to_lanes(picked)

    def scatter(self, table: Array, rows: Array, values: Array) -> Array:
        """The table with its rows ``[W, B]`` replaced by ``values [B, R, c * W]``."""
        values = self.from_lanes(values)
        return table.at[rows.reshape(-1)].set(values, mode="promise_in_bounds", unique_indices=True)

    def to_lanes(self, table: Array) -> Array:
        """``[W * N, R, c]`` as ``[N, R, c * W]``."""
        if self.seeds == 1:
            return table
        rows, inner, lanes = table.shape
        split = table.reshape((self.seeds, rows // self.seeds, inner, lanes))
        return split.transpose(1, 2, 3, 0).reshape((rows // self.seeds, inner, lanes * self.seeds))

    def from_lanes(self, values: Array) -> Array:
        """``[N, R, c * W]`` as ``[W * N, R, c]``, the inverse of `to_lanes`."""
        if self.seeds == 1:
            return values
        rows, inner, width = values.shape
        split = values.reshape((rows, inner, width // self.seeds, self.seeds))
        return split.transpose(3, 0, 1, 2).reshape((rows * self.seeds, inner, width // self.seeds))
