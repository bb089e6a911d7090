"""Closed forms of the worlds, on the host: what a simulation must agree with.

A *repeated-step chain* is the tool-use world with all that varies taken out: ``n`` equal steps in one context, a wrong
value that never comes right again, and a model that does not tire (``skill_decay`` 0). By itself it gets a step right
with probability ``q0 = skill``, after the decision to call with ``qc = 1 - tool_fail·(1 - skill)``, a failing
calculator included. With the probability ``c = σ(theta)`` of calling, a step succeeds with ``s = q0 + c·D``,
``D = qc - q0``, and with the cost ``λ`` of a call

    J(c) = sⁿ - λ·n·c            dJ/dtheta = n·c·(1 - c)·(D·sⁿ⁻¹ - λ).

J is convex in c: each step that the calculator makes safe raises what the next call is worth. So for costs in between,
never calling and always calling both attract, and where training starts decides. The bracket alone has the sign, hence
gradient ascent moves away from the separatrix at every step, whatever its step size. The formulas are derived from J;
it is exact in `rlvr_jax.reference_arithmetic` on a value from 1000 on, times 3 again and again, with ``bug_share`` 0:
all steps are in context mul1_2, and an error ``d`` becomes ``3·d`` plus 0, ±1 or ±10, which is never 0.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlvr_jax.types import InvalidInput


def chain_reward(call_prob: ArrayLike, call_cost: ArrayLike, n: int, q0: float, qc: float) -> NDArray[np.float64]:
    """Expected reward of a repeated-step chain: ``J(c) = (q0 + c·D)ⁿ - λ·n·c``.

    Args:
      call_prob: c in [0, 1], any shape.
      call_cost: λ, of a shape that broadcasts with it.
      n: Steps, at least 2.
      q0, qc: A step's success without and with the decision to call, ``0 <= q0 < qc <= 1``.

    Returns:
      J, float64, of the broadcast shape.

    Raises:
      InvalidInput: If n, q0, qc or call_prob is out of range.

    >>> chain_reward([0.0, 1.0], 0.2, 3, 0.6, 0.95).round(4).tolist()
    [0.216, 0.2574]
    """
    c, gain = _call_prob(call_prob), _gain(n, q0, qc)
    return np.asarray((q0 + c * gain) ** n - np.asarray(call_cost, float) * n * c)


def chain_gradient(call_prob: ArrayLike, call_cost: ArrayLike, n: int, q0: float, qc: float) -> NDArray[np.float64]:
    """Derivative of `chain_reward` for theta, ``n·c·(1 - c)·(D·sⁿ⁻¹ - λ)``: an unbiased estimator's expected update.

    Arguments and errors are those of `chain_reward`.

    >>> chain_gradient([0.3, 0.6], 0.2, 3, 0.6, 0.95).round(4).tolist()
    [-0.0164, 0.0213]
    """
    c, gain = _call_prob(call_prob), _gain(n, q0, qc)
    return np.asarray(n * c * (1 - c) * (gain * (q0 + c * gain) ** (n - 1) - np.asarray(call_cost, float)))


def chain_window(n: int, q0: float, qc: float) -> tuple[float, float]:
    """Costs between which never calling and always calling both attract: ``D·q0ⁿ⁻¹ < λ < D·qcⁿ⁻¹``.

    A call is worth least, ``D·q0ⁿ⁻¹``, where all other steps are done without one, and most where all are called for.
    Below the window every start ends in calling, above it none does.

    Args:
      n: Steps, at least 2.
      q0, qc: A step's success without and with the decision to call, ``0 <= q0 < qc <= 1``.

    Returns:
      The lower and the upper cost.

    Raises:
      InvalidInput: If n, q0 or qc is out of range.

    >>> low, high = chain_window(3, 0.6, 0.95)
    >>> round(low, 4), round(high, 4)
    (0.126, 0.3159)
    """
    gain = _gain(n, q0, qc)
    return gain * q0 ** (n - 1), gain * qc ** (n - 1)


def chain_separatrix(call_cost: ArrayLike, n: int, q0: float, qc: float) -> NDArray[np.float64]:
    """The call probability that parts the two basins: ``c* = ((λ/D)^(1/(n - 1)) - q0) / D``, where ``D·sⁿ⁻¹ = λ``.

    Gradient ascent that starts below c* ends at never calling, above c* at always calling.

    Args:
      call_cost: λ, at least 0, any shape.
      n: Steps, at least 2.
      q0, qc: A step's success without and with the decision to call, ``0 <= q0 < qc <= 1``.

    Returns:
      c*, float64, of the shape of ``call_cost``; 0 below `chain_window` and 1 above it, where one basin is everything.

    Raises:
      InvalidInput: If an argument is out of range.

    >>> chain_separatrix([0.1, 0.15, 0.2, 0.25, 0.4], 3, 0.6, 0.95).round(4).tolist()
    [0.0, 0.1562, 0.4455, 0.7004, 1.0]
    """
    gain, cost = _gain(n, q0, qc), np.asarray(call_cost, float)
    if not (cost >= 0).all():
        raise InvalidInput(f"call_cost is {call_cost}; it must be at least 0")
    return np.clip(((cost / gain) ** (1 / (n - 1)) - q0) / gain, 0.0, 1.0)


def chain_switch(n: int, q0: float, qc: float) -> float:
    """The cost at which the better of the two ends changes: ``λ = (qcⁿ - q0ⁿ) / n``, where ``J(0) = J(1)``.

    It lies inside `chain_window`, as the mean of ``D·sⁿ⁻¹`` over c. Between the window's lower end and this cost, a
    policy that starts below the separatrix is trapped at never calling although always calling pays more.

    Args:
      n: Steps, at least 2.
      q0, qc: A step's success without and with the decision to call, ``0 <= q0 < qc <= 1``.

    Returns:
      The cost.

    Raises:
      InvalidInput: If n, q0 or qc is out of range.

    >>> round(chain_switch(3, 0.6, 0.95), 4)
    0.2138
    """
    _gain(n, q0, qc)
    return (qc**n - q0**n) / n


def _gain(n: int, q0: float, qc: float) -> float:
    """D, after checks."""
    if not n >= 2:
        raise InvalidInput(f"n is {n}; a chain has at least 2 steps")
    if not 0 <= q0 < qc <= 1:
        raise InvalidInput(f"q0 is {q0} and qc is {qc}; 0 <= q0 < qc <= 1 must hold")
    return qc - q0


def _call_prob(call_prob: ArrayLike) -> NDArray[np.float64]:
    c = np.asarray(call_prob, float)
    if not ((c >= 0) & (c <= 1)).all():
        raise InvalidInput(f"call_prob is {call_prob}; it must be in [0, 1]")
    return c
