"""Tool use on chain arithmetic: when to call the calculator, and what a call may cost.

A model with fixed arithmetic skill works through a chain of operations. Before each step it decides: compute by
itself, or call a calculator, which is right but fails now and then; then the model computes by itself after all. Only
the decision is trained, by one logit for each of twelve contexts (operation and difficulty):

    P(call | context) = sigmoid(theta[context]),    reward = correct - call_cost * calls

Here are single runs; `rlvr_jax.arithmetic_world` has what a grid may vary, `rlvr_jax.arithmetic_program` the step.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlvr_jax import chain, devices, single
from rlvr_jax.arithmetic_program import Drawn, Program, initial, taught
from rlvr_jax.arithmetic_world import WORLD
from rlvr_jax.chain import CONTEXTS
from rlvr_jax.numerics import Stage
from rlvr_jax.problems import Problems, make_problems, read_problems
from rlvr_jax.rollouts import DRAWN
from rlvr_jax.types import InvalidInput, numbers

__all__ = ["Problems", "make_problems", "read_problems", "replay", "replay_sft", "train"]


def train(
    train_problems: Problems | int = 300,
    test_problems: Problems | int = 200,
    *,
    steps: int,
    seed: int = 0,
    precision: str = "float32",
    **options: Any,
) -> dict[str, np.ndarray]:
    """One training: the program of a sweep, with one cell in it.

    Args:
      train_problems: Problems, or how many to make from ``train_seed``.
      test_problems: The same for the evaluation, from ``test_seed``.
      steps: T >= 0.
      seed: Of the problems' order and the rollouts.
      precision: "float32" or "float64".
      **options: ``method``; and as in `rlvr_jax.sweep` ``call_cost`` (0), ``cold_start`` (False), ``lr`` (20),
        ``batch_size`` (16), ``group_size`` (8), ``tool_fail``, ``initial_call_prob``, ``sft_examples``,
        ``sft_epochs``, ``sft_lr``, ``eval_repeats``, ``eval_every``, ``eval_steps``, ``keep`` and the others of
        `arithmetic_world.PARAMETERS`.

    Returns:
      By name: the metrics of a sweep ``[E, ...]`` with their ``step [E]``, ``zero_frac_total``, ``diverged_step``
      (-1 for never), and the final ``theta [K]``.

    Raises:
      InvalidInput: As `rlvr_jax.sweep`.

    >>> run = train(method="rloo", call_cost=0.02, steps=4)
    >>> run["step"].tolist(), run["call_prob"].shape, round(float(run["call_prob"][0, 0]), 3)
    ([0, 1, 2, 3, 4], (5, 12), 0.05)
    """
    grid = single.one_cell(
        WORLD,
        options,
        train_problems=train_problems,
        test_problems=test_problems,
        steps=steps,
        seed=seed,
        precision=precision,
    )
    program = single.program(grid)
    inputs, shared = WORLD.inputs(program, grid, single.CELL)
    return single.train(grid, program, inputs, shared, ("zero_frac_total", "theta"))


def replay(problems: Problems, draws: Mapping[str, Any], **options: Any) -> dict[str, np.ndarray]:
    """One training in float64 on given draws, through the step that sweeps run.

    Args:
      problems: The training problems.
      draws: By name: ``problem`` int ``[T, B]``, distinct within a step; ``u_call``, ``u_fail`` and ``u_own``
        ``[T, B, G, S]`` in [0, 1); and ``offset`` int ``[T, B, G, S]``, an index into `chain.SLIPS`. A draw is read
        only where it is needed; elsewhere it may be NaN, or -1.
      **options: ``method``; ``theta0``, a number or ``[K]``, the logits at the start (from ``initial_call_prob``
        unless given); ``call_cost`` (0), ``lr`` (20), ``tool_fail`` (0.05), ``eps``, ``baseline_rate``, and the
        model's ``skill_...``, ``skill_decay`` and ``bug_share``.

    Returns:
      By name: ``theta [T + 1, K]``; ``call`` and ``context`` int ``[T, B, G, S]``, -1 after the end of a chain;
      ``final_x`` int, ``correct`` bool, ``reward`` and ``advantage [T, B, G]``; ``diverged_step`` (-1 for never).

    Raises:
      InvalidInput: For shapes and values that do not fit, and as `rlvr_jax.sweep`.

    >>> problems, rng = make_problems(20, 0), np.random.default_rng(0)
    >>> drawn = {name: rng.random((2, 4, 8, 8)) for name in ("u_call", "u_fail", "u_own")}
    >>> drawn |= {"problem": [[0, 1, 2, 3], [4, 5, 6, 7]], "offset": rng.integers(4, size=(2, 4, 8, 8))}
    >>> run = replay(problems, drawn, method="grpo", call_cost=0.02)
    >>> run["theta"].shape, run["call"].shape
    ((3, 12), (2, 4, 8, 8))
    """
    options = dict(options)
    theta0 = options.pop("theta0", None)
    drawn = _checked(problems, draws, _SHAPES)
    steps, batch, group, places = drawn["u_own"].shape
    if places < problems.length.max():
        raise InvalidInput(f"u_own has {places} places; the problems have up to {problems.length.max()} steps")
    grid = single.one_cell(
        WORLD,
        options,
        idle=_IDLE,
        train_problems=problems,
        test_problems=problems,
        steps=steps,
        batch_size=batch,
        group_size=group,
        max_steps=places,
        precision="float64",
    )
    program = single.program(grid)
    inputs, shared = WORLD.inputs(program, grid, single.CELL)
    if theta0 is not None:
        theta0 = _logits(theta0)
    devices.use_compile_cache()
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: x[0], inputs)
        uniforms = np.stack([drawn[name] for name in DRAWN], 1).transpose(0, 4, 1, 3, 2)  # [T, S, 3, G, B]
        slip = drawn["offset"].astype(np.int32).transpose(0, 3, 2, 1)
        read = Drawn(drawn["problem"].astype(np.int32)[..., None], uniforms[..., None], slip[..., None])
        theta, done, diverged = jax.tree.map(np.asarray, _replayed(program, one, shared, read, theta0, np.bool_(True)))
    rollouts, worth = done
    words = rollouts.words[..., 0].transpose(0, 3, 2, 1)  # [T, B, G, S]
    call, context = _decisions(problems, drawn["problem"].astype(np.int64)[:, :, None], words)
    _check_read(drawn, call, context, shared["model"].bug[0], float(grid.fixed["tool_fail"]))
    return {
        "theta": theta[..., 0],
        "call": call,
        "context": context,
        "final_x": chain.value(words[..., -1]),
        **{
            name: values[..., 0].transpose(0, 2, 1)
            for name, values in (
                ("correct", rollouts.correct),
                ("reward", worth.reward),
                ("advantage", worth.advantage),
            )
        },
        "diverged_step": diverged[0],
    }


def replay_sft(
    problems: Problems, draws: Mapping[str, Any], *, lr: float = 0.05, theta0: Any = None, **options: Any
) -> dict[str, np.ndarray]:
    """The cold start in float64 on given draws, through the function that sweeps run.

    Args:
      problems: The training problems; the expert shows the first of them.
      draws: By name: ``u_own [E, n, S]`` in [0, 1) and ``offset`` int ``[E, n, S]``, for E epochs of n examples; read
        only where the expert does not call.
      lr: The learning rate ``sft_lr``.
      theta0: A number or ``[K]``, the logits at the start; from ``initial_call_prob`` unless given.
      **options: The model's ``skill_...``, ``skill_decay``, ``bug_share``, and ``initial_call_prob``.

    Returns:
      ``theta [E + 1, K]``.

    Raises:
      InvalidInput: For shapes and values that do not fit.
    """
    drawn = _checked(problems, draws, {name: _SHAPES[name][1:] for name in ("u_own", "offset")})
    epochs, examples, places = drawn["u_own"].shape
    if epochs == 0 or examples > len(problems):
        raise InvalidInput(
            f"u_own has shape {drawn['u_own'].shape}; it must be at least one epoch of at most {len(problems)} examples"
        )
    if places < problems.length[:examples].max():
        raise InvalidInput(
            f"u_own has {places} places; the examples have up to {problems.length[:examples].max()} steps"
        )
    grid = single.one_cell(
        WORLD,
        options,
        idle=(*_IDLE, "call_cost", "tool_fail", "lr", "eps", "baseline_rate", "group_size"),
        method="none",
        train_problems=problems,
        test_problems=problems,
        steps=0,
        batch_size=1,
        max_steps=max(places, int(problems.length.max())),
        cold_start=True,
        sft_lr=lr,
        sft_examples=examples,
        sft_epochs=epochs,
        precision="float64",
    )
    program = single.program(grid)
    inputs, shared = WORLD.inputs(program, grid, single.CELL)
    wide = ((0, 0), (0, 0), (0, program.longest - places))
    own, slip = (np.pad(drawn[name], wide).transpose(2, 0, 1)[..., None] for name in ("u_own", "offset"))
    uniforms = np.stack([np.full(own.shape, 0.5), own, np.full(own.shape, 0.5)], 1)  # [S, 3, E, n, 1]
    devices.use_compile_cache()
    with jax.enable_x64(True):
        one = jax.tree.map(lambda x: x[0], inputs)
        given = None if theta0 is None else _logits(theta0)
        theta, words = _taught(program, one, shared, uniforms, slip.astype(np.int32), given, np.bool_(True))
    words = np.asarray(words)[:places, ..., 0].transpose(1, 2, 0)  # [E, n, S]
    call, context = _decisions(problems, np.arange(examples)[None], words)
    _check_read(drawn | {"u_fail": np.ones(words.shape)}, call, context, shared["model"].bug[0], 0.0)
    return {"theta": np.asarray(theta)[..., 0]}


#: What only a program that draws by itself, evaluates or imitates reads.
_IDLE = (
    *("seed", "task_seed", "train_seed", "test_seed", "prompt_seed", "answer_seed", "min_steps", "cold_start"),
    *("sft_examples", "sft_epochs", "sft_lr", "eval_repeats", "eval_every", "eval_steps", "keep"),
)

#: The axes of given draws.
_SHAPES = {"problem": "TB", "u_call": "TBGS", "u_fail": "TBGS", "u_own": "TBGS", "offset": "TBGS"}


@partial(jax.jit, static_argnums=0)
def _replayed(program: Program, inputs: Any, shared: Any, drawn: Drawn[Array], theta0: Any, go: Array) -> Any:
    """Theta ``[T + 1, K, L]``, what each step's rollouts did and were worth, and the step of divergence."""
    context, stage = program.context(inputs, shared), Stage(go)
    state = program.start(context, stage)
    if theta0 is not None:
        state = replace(state, theta=jnp.broadcast_to(theta0[None, :, None], state.theta.shape))

    def step(state: Any, now: Any) -> Any:
        number, drawn = now
        state, done = program.step(state, context, drawn, number, number < 0, stage)
        return state, (state.theta[0], done)

    numbers = 1 + jnp.arange(len(drawn.problem), dtype=jnp.int32)
    last, (theta, done) = lax.scan(step, state, (numbers, drawn))
    return jnp.concatenate([state.theta, theta]), done, last.diverged


@partial(jax.jit, static_argnums=0)
def _taught(program: Program, inputs: Any, shared: Any, uniforms: Array, slip: Array, theta0: Any, go: Array) -> Any:
    """Theta before the first epoch and after each, ``[E + 1, K, L]``, and the words of the chains ``[S, E, n, 1]``."""
    context, stage = program.context(inputs, shared), Stage(go)
    theta = stage(initial, context.numbers["initial_call_prob"][None, None])
    if theta0 is not None:
        theta = jnp.broadcast_to(theta0[None, :, None], theta.shape)
    batch = program.examples_of(context)
    counts, words = program.imitated(batch, uniforms, slip, context, stage)
    after = taught(theta, program.layout.spread(counts), context.numbers["sft_lr"][None, None], stage)
    return jnp.concatenate([theta, after[:, 0]]), words


def _decisions(problems: Problems, problem: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each step called and in which context, ``[..., S]`` like ``words``; -1 after the end of a chain."""
    hard, places = chain.difficulty(words), words.shape[-1]
    op = np.pad(problems.op.astype(np.int64), ((0, 0), (0, places)))[problem][..., :places]
    ended = hard == chain.ENDED
    return np.where(ended, -1, chain.called(words)), np.where(ended, -1, chain.DIFFICULTIES * op + hard)


def _check_read(
    drawn: Mapping[str, np.ndarray], call: np.ndarray, context: np.ndarray, bug: np.ndarray, tool_fail: float
) -> None:
    """Refuses draws that are missing where a rollout reads them; ``bug`` is ``[S, K]``."""
    alone = (call == 0) | ((call == 1) & (drawn["u_fail"] < tool_fail))
    careless = alone & (drawn["u_own"] >= bug[np.arange(call.shape[-1]), context])
    for name, needed in (("u_call", call >= 0), ("u_fail", call == 1), ("u_own", alone), ("offset", careless)):
        if name in drawn:
            missing = np.argwhere(needed & (np.isnan(drawn[name]) | (drawn[name] < 0)))
            if len(missing):
                raise InvalidInput(f"{name} is missing at {tuple(missing[0].tolist())}, where a rollout reads it")


def _logits(given: Any) -> np.ndarray:
    """Logits ``[K]`` from a number or K of them."""
    theta = numbers(given, "theta0", f"a number or {len(CONTEXTS)} numbers")
    if theta.shape not in ((), (len(CONTEXTS),)) or not np.isfinite(theta).all():
        raise InvalidInput(f"theta0 has shape {theta.shape}; it must be a finite number or {len(CONTEXTS)} of them")
    return np.broadcast_to(theta, (len(CONTEXTS),))


def _checked(problems: Any, draws: Any, shapes: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The draws as arrays, NaN or -1 where they are missing; or a sentence that says what they must be."""
    if not isinstance(problems, Problems):
        kind = type(problems).__name__
        raise InvalidInput(f"problems is of type {kind}; it must be Problems, as make_problems gives")
    if not isinstance(draws, Mapping) or not set(shapes) <= set(draws):
        raise InvalidInput(f"draws must map {', '.join(shapes)} to arrays")
    sizes: dict[str, int] = {}
    checked = {}
    for name, axes in shapes.items():
        array = numbers(draws[name], name, f"numbers [{', '.join(axes)}]")
        for axis, size in zip(axes, array.shape, strict=False):
            sizes.setdefault(axis, size)
        if array.ndim != len(axes) or array.shape != tuple(sizes[axis] for axis in axes) or 0 in array.shape[1:]:
            raise InvalidInput(f"{name} has shape {array.shape}; it must be [{', '.join(axes)}], like the other draws")
        if name == "offset":
            array, allowed = np.nan_to_num(array, nan=-1), range(-1, len(chain.SLIPS))
        elif name == "problem":
            allowed = range(len(problems))
        elif np.all(np.isnan(array) | ((array >= 0) & (array < 1))):
            allowed = None
        else:
            raise InvalidInput(f"{name} must lie in [0, 1)")
        if allowed is not None and not np.isin(array, allowed).all():
            raise InvalidInput(f"{name} must be whole numbers from {allowed.start} to {allowed.stop - 1}")
        checked[name] = array
    if "problem" in checked and np.any(np.diff(np.sort(checked["problem"], 1), axis=1) == 0):
        raise InvalidInput("problem repeats a problem within a step; the problems of a step must differ")
    return checked
