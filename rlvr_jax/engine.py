"""Plan in, numbers out: compiles each program once and drives it over chunks, time slices and devices.

A *program* is the static part of a world (see `Program`). An *item* is what one pass of it trains: W seeds with C
lanes each. Items are mapped one after another inside the compiled function and sharded over all devices; the host
loops over calls of a fixed number of items and over time slices of a fixed number of segments, so that nothing but
array values changes between calls. Files, labels and grids are not known here.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage

if TYPE_CHECKING:
    from rlvr_jax.devices import Device


class Program(Protocol):
    """What the engine needs of a world's static, hashable program."""

    @property
    def layout(self) -> Layout: ...

    @property
    def draws_at_once(self) -> int: ...

    def context(self, inputs: Any, shared: Any) -> Any: ...

    def start(self, context: Any, stage: Stage) -> Any: ...

    def draw(self, context: Any, steps: Array, stage: Stage) -> Any: ...

    def step(self, state: Any, context: Any, draw: Any, step: Array, last: Array, stage: Stage) -> tuple[Any, Any]: ...

    def evaluate(self, state: Any, context: Any, step: Array, stage: Stage) -> dict[str, Array]: ...

    def reset(self, state: Any, counted: Array) -> Any: ...

    def finish(self, state: Any, context: Any, steps: Array) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Segments:
    """A training cut at evaluations, and between them where a call would last too long.

    Attributes:
      begin: int32 ``[slices]``, the steps done before each time slice.
      stop: int32 ``[slices, segments]``, the step at which each segment stops; not descending.
      counted: bool ``[slices, segments]``, whether a segment ends with an evaluation that is stored.
    """

    begin: np.ndarray
    stop: np.ndarray
    counted: np.ndarray

    @classmethod
    def cut(cls, eval_steps: Sequence[int], slices: int) -> "Segments":
        """Segments that stop at each of ``eval_steps``, in about ``slices`` time slices of equal length.

        >>> Segments.cut([0, 50, 100], 1).stop.tolist()
        [[0, 50, 100]]
        >>> Segments.cut([0, 100], 4).stop.tolist()
        [[0, 25], [50, 50], [75, 75], [100, 100]]
        """
        steps = eval_steps[-1]
        ends = np.unique(np.ceil(np.arange(1, slices + 1) * (steps / slices)).astype(np.int32))
        stops = np.unique(np.concatenate([np.asarray(eval_steps, np.int32), ends]))
        groups = [stops[(stops <= end) & (stops > begin)] for begin, end in zip([-1, *ends[:-1]], ends, strict=True)]
        longest = max(len(group) for group in groups)
        stop = np.stack([np.pad(group, (0, longest - len(group)), mode="edge") for group in groups])
        real = np.arange(longest) < np.array([[len(group)] for group in groups])
        begin = np.concatenate([[0], ends[:-1]]).astype(np.int32)
        return cls(begin, stop.astype(np.int32), np.isin(stop, eval_steps) & real)


@dataclass
class Compiled:
    """The three compiled functions of a program for one shape of call."""

    start: jax.stages.Compiled
    advance: jax.stages.Compiled
    finish: jax.stages.Compiled
    seconds: float


@dataclass
class Clock:
    """What a run took.

    Attributes:
      compile_seconds: Spent on compilation, or on loading from the compile cache.
      programs: How many programs were compiled or loaded by this run.
      run_seconds: Spent on running.
    """

    compile_seconds: float = 0.0
    programs: int = 0
    run_seconds: float = 0.0


@dataclass(frozen=True)
class Work:
    """One program with all its items.

    Attributes:
      program: The static program.
      inputs: Arrays ``[N, ...]`` by name, one entry for each item.
      shared: Arrays that all items read.
      items: Items in one call; N is padded to a multiple of it by the first items again.
      segments: Evaluations and time slices.
      metrics: Names of the metrics to return at each evaluation.
      finals: Names of what to return once, at the end.
    """

    program: Program
    inputs: Any
    shared: Any
    items: int
    segments: Segments
    metrics: tuple[str, ...]
    finals: tuple[str, ...]


@dataclass(frozen=True)
class Chunk:
    """The numbers of some items of a `Work`.

    Attributes:
      items: Their place in the inputs.
      metrics: ``[items, E, ...]`` by name, at the evaluations that count, in order.
      finals: ``[items, ...]`` by name.
    """

    items: slice
    metrics: dict[str, np.ndarray]
    finals: dict[str, np.ndarray]


#: Programs that a process keeps. Each takes some 500 mappings of memory, of which Linux gives a process 65,530.
MOST_COMPILED = 32

_compiled: dict[Any, Compiled] = {}


def run(
    work: Work, devices: "Sequence[Device]", clock: Clock, advanced: Callable[[float], object] = lambda share: None
) -> Iterator[Chunk]:
    """Trains all items of ``work``, a call at a time, and yields each call's numbers.

    Args:
      work: What to train.
      devices: Where; items are sharded over them. The numbers do not depend on how many there are.
      clock: Is added to.
      advanced: Called after each time slice with the share of ``work`` that it was.
    """
    number = len(jax.tree.leaves(work.inputs)[0])
    functions = compile_program(work, devices, clock)
    slices = len(work.segments.begin)
    calls = -(-number // work.items)
    go = np.bool_(True)
    for call in range(calls):
        began = time.perf_counter()
        items = slice(call * work.items, min((call + 1) * work.items, number))
        chosen = np.resize(np.arange(items.start, items.stop), work.items)
        inputs = jax.tree.map(lambda x, chosen=chosen: x[chosen], work.inputs)
        state = functions.start(inputs, work.shared, go)
        collected = []
        for begin, stop, counted in zip(work.segments.begin, work.segments.stop, work.segments.counted, strict=True):
            state, metrics = functions.advance(state, inputs, work.shared, go, begin, stop, counted)
            collected.append({name: np.asarray(x)[:, counted] for name, x in metrics.items()})
            advanced(1 / (slices * calls))
        finals = functions.finish(state, inputs, work.shared, work.segments.stop[-1, -1])
        real = items.stop - items.start
        yield_metrics = {name: np.concatenate([part[name] for part in collected], 1)[:real] for name in work.metrics}
        clock.run_seconds += time.perf_counter() - began
        yield Chunk(items, yield_metrics, {name: np.asarray(x)[:real] for name, x in finals.items()})


def compile_program(work: Work, devices: "Sequence[Device]", clock: Clock) -> Compiled:
    """The compiled functions for ``work``, from this process if it has met the same shapes before."""

    def shape(x: Any) -> tuple[tuple[int, ...], Any]:
        return np.shape(x), np.asarray(x).dtype

    one = jax.tree.map(lambda x: x[:1], work.inputs)
    arrays, tree = jax.tree.flatten((one, work.shared))
    segments = work.segments.stop.shape[1]
    key = (
        work.program,
        tuple(devices),
        work.items,
        segments,
        work.metrics,
        work.finals,
        tree,
        tuple(shape(x) for x in arrays),
    )
    if key in _compiled:
        _compiled[key] = _compiled.pop(key)  # the last one used comes last
    else:
        while len(_compiled) >= MOST_COMPILED:
            _compiled.pop(next(iter(_compiled)))
        _compiled[key] = _compile(work, devices, segments)
        clock.compile_seconds += _compiled[key].seconds
        clock.programs += 1
    return _compiled[key]


def _compile(work: Work, devices: "Sequence[Device]", segments: int) -> Compiled:
    program = work.program
    sharded, replicated = PartitionSpec("items"), PartitionSpec()
    mesh = Mesh(np.array(devices), ("items",))

    def over_items(function: Callable[..., Any], arguments: int) -> Callable[..., Any]:
        """A compiled function of per-item arguments and then of ``arguments`` shared ones."""

        def local(mapped: Any, *others: Any) -> Any:
            return lax.map(lambda one: function(*one, *others), mapped)

        specs = (sharded, *[replicated] * arguments)
        return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=sharded, check_vma=False)

    def start(inputs: Any, shared: Any, go: Array) -> Any:
        return program.start(program.context(inputs, shared), Stage(go))

    def advance(state: Any, inputs: Any, shared: Any, go: Array, begin: Array, stop: Array, counted: Array) -> Any:
        context, stage = program.context(inputs, shared), Stage(go)

        def segment(carry: tuple[Any, Array], end: tuple[Array, Array]) -> tuple[tuple[Any, Array], Any]:
            state, done = carry
            stop, counted = end
            state = _steps(program, state, context, done, stop, counted, stage)
            metrics = stage.when(counted, lambda state: _evaluated(work, state, context, stop, stage), state)
            return (program.reset(state, counted), stop), metrics

        (state, _), metrics = lax.scan(segment, (state, begin), (stop, counted))
        return state, metrics

    def finish(state: Any, inputs: Any, shared: Any, steps: Array) -> Any:
        finals = program.finish(state, program.context(inputs, shared), steps)
        return {name: finals[name] for name in work.finals}

    began = time.perf_counter()
    inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((work.items, *np.shape(x)[1:]), x.dtype), work.inputs)
    step, ends = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((segments,), jnp.int32)
    flag, flags = jax.ShapeDtypeStruct((), bool), jax.ShapeDtypeStruct((segments,), bool)

    mapped_start = jax.jit(lambda inputs, *others: over_items(start, 2)((inputs,), *others))
    mapped_advance = jax.jit(
        lambda state, inputs, *others: over_items(advance, 5)((state, inputs), *others), donate_argnums=0
    )
    mapped_finish = jax.jit(lambda state, inputs, *others: over_items(finish, 2)((state, inputs), *others))
    compiled_start = mapped_start.lower(inputs, work.shared, flag).compile()
    state = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(mapped_start, inputs, work.shared, flag),
        compiled_start.output_shardings,
    )
    compiled_advance = mapped_advance.lower(state, inputs, work.shared, flag, step, ends, flags).compile()
    compiled_finish = mapped_finish.lower(state, inputs, work.shared, step).compile()
    return Compiled(compiled_start, compiled_advance, compiled_finish, time.perf_counter() - began)


def _steps(program: Program, state: Any, context: Any, done: Array, stop: Array, counted: Array, stage: Stage) -> Any:
    """Trains from ``done`` steps to ``stop`` steps; draws are made for aligned blocks of steps at a time."""
    size = program.draws_at_once

    def block(b: Array, state: Any) -> Any:
        draws = program.draw(context, b * size + 1 + jnp.arange(size), stage)

        def step(i: Array, state: Any) -> Any:
            draw = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, i - b * size, keepdims=False), draws)
            return program.step(state, context, draw, i + 1, counted & (i + 1 == stop), stage)[0]

        return lax.fori_loop(jnp.maximum(done, b * size), jnp.minimum(stop, (b + 1) * size), step, state)

    first = done // size
    return lax.fori_loop(first, jnp.where(stop > done, (stop + size - 1) // size, first), block, state)


def _evaluated(work: Work, state: Any, context: Any, step: Array, stage: Stage) -> Mapping[str, Array]:
    metrics = work.program.evaluate(state, context, step, stage)
    return {name: metrics[name] for name in work.metrics}
