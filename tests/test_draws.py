"""Random numbers: the cipher, uniforms, distinct prompts, and the draws of a program.

Statistical tests use fixed seeds and refuse p-values below 1e-4: each would fail once in 10^4 choices of its seed.
"""

from functools import cache, partial
from itertools import permutations

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chi2, chi2_contingency, norm

from rlvr_jax import draws
from rlvr_jax.bandit_program import Context, Program
from rlvr_jax.draws import Stream, choose, step_key, threefry, uniforms
from rlvr_jax.lanes import Layout
from rlvr_jax.numerics import Stage

FALSE_ALARM = 1e-4


cipher = jax.jit(threefry)
chosen_from = jax.jit(choose)


def words(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).integers(2**32, size=shape, dtype=np.uint32))


def level(population):
    return jnp.full(1, population, jnp.int32)


# The cipher


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123, kat_vectors, threefry2x32 with 20 rounds
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers_of_random123(counter, key, expected):
    result = cipher(tuple(map(jnp.uint32, key)), tuple(map(jnp.uint32, counter)))
    assert tuple(map(int, result)) == expected


def test_the_cipher_is_the_one_that_jax_is_built_on():
    for i in range(5):
        key, counter = words(i, 2), words(100 + i, 2, 37)
        expected = jax.extend.random.threefry_2x32(key, counter.reshape(-1)).reshape(2, 37)
        assert_array_equal(jnp.stack(cipher((key[0], key[1]), (counter[0], counter[1]))), expected)


def test_streams_steps_and_seeds_have_keys_of_their_own():
    seeds = jnp.arange(50, dtype=jnp.uint32)[None]
    steps = jnp.arange(40, dtype=jnp.uint32)[:, None]
    keys = [np.stack(step_key(seeds, stream, steps), -1).reshape(-1, 2) for stream in Stream]
    assert len(np.unique(np.concatenate(keys), axis=0)) == len(Stream) * 50 * 40


# Uniforms


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniforms_lie_strictly_within_0_and_1_and_are_those_of_float32(dtype):
    bits = jnp.asarray(np.array([0, 1, 511, 512, 2**31, 2**32 - 512, 2**32 - 1], np.uint32))
    with jax.enable_x64(dtype == "float64"):
        numbers = np.asarray(uniforms(bits, jnp.dtype(dtype)))
    assert numbers.dtype == dtype
    expected = ((np.asarray(bits) >> 9) + 0.5) / 2**23
    assert_array_equal(numbers, expected)
    assert 0 < numbers.min() < numbers.max() < 1


def test_uniforms_have_the_mean_the_variance_and_the_shape_of_a_uniform():
    n, bins = 10**6, 256
    counter = jnp.arange(n, dtype=jnp.uint32)
    for word in cipher((jnp.uint32(1), jnp.uint32(2)), (counter, jnp.uint32(0))):
        u = np.asarray(uniforms(word, jnp.dtype("float32")), np.float64)
        mean = (u.mean() - 1 / 2) * np.sqrt(12 * n)
        square = (((u - 1 / 2) ** 2).mean() - 1 / 12) * np.sqrt(180 * n)
        assert 2 * norm.sf(abs(mean)) > FALSE_ALARM
        assert 2 * norm.sf(abs(square)) > FALSE_ALARM
        count = np.bincount((u * bins).astype(int), minlength=bins)
        assert chi2.sf(((count - n / bins) ** 2).sum() / (n / bins), bins - 1) > FALSE_ALARM


# Distinct prompts


@pytest.mark.parametrize(("slots", "population"), [(1, 1), (1, 9), (5, 5), (8, 9), (32, 200), (64, 64)])
def test_chosen_numbers_are_distinct_and_below_the_population(slots, population):
    chosen = np.asarray(chosen_from(words(0, slots, 500), level(population)))
    assert chosen.shape == (slots, 500)
    assert chosen.dtype == np.int32
    ordered = np.sort(chosen, 0)
    assert ordered[0].min() >= 0
    assert ordered[-1].max() < population
    assert (np.diff(ordered, axis=0) > 0).all()


def test_a_small_batch_is_the_beginning_of_a_large_one():
    bits = words(1, 32, 100)
    whole = chosen_from(bits, level(40))
    for slots in (1, 8, 31):
        assert_array_equal(chosen_from(bits[:slots], level(40)), whole[:slots])


def test_the_trailing_shape_changes_nothing():
    bits = words(2, 6, 24)
    expected = np.asarray(chosen_from(bits, level(11)))
    assert_array_equal(chosen_from(bits.reshape(6, 2, 3, 4), jnp.full((1, 1, 1), 11)).reshape(6, 24), expected)
    for i in (0, 23):
        assert_array_equal(chosen_from(bits[:, i], jnp.int32(11)), expected[:, i])


def test_each_column_has_a_population_of_its_own():
    bits, sizes = words(3, 5, 4), [5, 6, 77, 65536]
    together = chosen_from(bits, jnp.asarray(sizes))
    for i, size in enumerate(sizes):
        assert_array_equal(together[:, i], chosen_from(bits[:, i : i + 1], level(size))[:, 0])


def test_extreme_words_stay_in_range_for_the_largest_population():
    bits = jnp.asarray(np.array([[0, 2**32 - 1], [0, 2**32 - 1], [2**31, 1], [2**32 - 1, 0]], np.uint32))
    chosen = np.asarray(chosen_from(bits, level(draws.MOST_CHOICES)))
    assert_array_equal(chosen[:2], [[0, 65535], [1, 0]])  # slot 1 finds the 0 that slot 0 moved to position 65535
    assert chosen.min() >= 0
    assert chosen.max() < draws.MOST_CHOICES
    assert all(len(set(column)) == 4 for column in chosen.T)


def test_chosen_numbers_are_those_of_a_plain_fisher_yates():
    bits = np.asarray(words(4, 12, 50))
    for population in (12, 13, 200, 65536):
        chosen = np.asarray(chosen_from(jnp.asarray(bits), level(population)))
        for column in range(bits.shape[1]):
            items = list(range(population))
            for b in range(12):
                position = b + (int(bits[b, column]) * (population - b) >> 32)
                items[b], items[position] = items[position], items[b]
            assert chosen[:, column].tolist() == items[:12]


# The draws of a program


@partial(jax.jit, static_argnums=0)
def _draw(program, context, steps, go):
    return program.draw(context, steps, Stage(go))


def drawn(seeds=(0,), first=1, steps=1, prompts=200, batch=32, group=2, pool=None, answer_seeds=None):
    """Prompts ``[N, B, W]`` and uniforms ``[N, B, G, W]`` of a program."""
    side = len(seeds)
    program = Program(Layout(side, (("rloo", 16),)), prompts, 3, batch, group, subset=pool is not None)
    table = jnp.zeros((side * prompts, 3, 1))
    context = Context(
        ref_logits=table,
        log_ref=table,
        level=jnp.zeros((prompts, side), jnp.int32),
        pool=jnp.zeros((side, 0), jnp.int32) if pool is None else jnp.asarray(pool[0], jnp.int32),
        pool_size=jnp.full(side, prompts, jnp.int32) if pool is None else jnp.asarray(pool[1], jnp.int32),
        prompt_seed=jnp.asarray(np.array(seeds, np.uint32)),
        answer_seed=jnp.asarray(np.array(seeds if answer_seeds is None else answer_seeds, np.uint32)),
        payments=jnp.zeros((1, 1)),
        payment=jnp.zeros(16 * side, jnp.int32),
        numbers={},
    )
    numbers = jnp.arange(first, first + steps, dtype=jnp.int32)
    return tuple(map(np.asarray, _draw(program, context, numbers, np.bool_(True))))


def test_a_draw_does_not_depend_on_batch_group_seeds_beside_it_or_steps_drawn_together():
    prompts, u = drawn(seeds=(3, 9, 4), steps=10, batch=8, group=6)
    for seeds, first, steps, batch, group in [
        ((3, 9, 4), 1, 10, 5, 6),
        ((9,), 1, 10, 8, 1),
        ((4, 3), 4, 2, 2, 5),
    ]:
        place = [(3, 9, 4).index(seed) for seed in seeds]
        steps_drawn = slice(first - 1, first - 1 + steps)
        few, v = drawn(seeds=seeds, first=first, steps=steps, batch=batch, group=group)
        assert_array_equal(few, prompts[steps_drawn, :batch][..., place])
        assert_array_equal(v, u[steps_drawn, :batch, :group][..., place])


def test_a_draw_is_the_documented_function_of_seed_stream_step_slot_and_sample():
    _, u = drawn(seeds=(7,), first=5, batch=3, group=5)
    key = step_key(jnp.uint32(7), Stream.ANSWERS, jnp.uint32(5))
    for slot in range(3):
        for sample in range(5):
            pair = cipher(key, (jnp.uint32(sample // 2), jnp.uint32(slot)))
            assert u[0, slot, sample, 0] == float(uniforms(pair[sample % 2], jnp.dtype("float32")))
    prompts, _ = drawn(seeds=(7,), first=5, batch=3, prompts=50)
    key = step_key(jnp.uint32(7), Stream.PROMPTS, jnp.uint32(5))
    bits = jnp.stack([cipher(key, (jnp.uint32(0), jnp.uint32(slot)))[0] for slot in range(3)])
    assert_array_equal(prompts[0, :, 0], chosen_from(bits, jnp.int32(50)))


def test_prompt_and_answer_seeds_move_only_their_own_draws():
    prompts, u = drawn(seeds=(1,), steps=5)
    others, same = drawn(seeds=(2,), steps=5, answer_seeds=(1,))
    assert (others != prompts).any()
    assert_array_equal(same, u)


def test_seeds_and_steps_differ_and_the_largest_seed_is_a_seed():
    seeds = (0, 1, 2, 3, 2**31, 2**32 - 1)
    prompts, u = drawn(seeds=seeds, steps=40, batch=8, group=4)
    by_place = prompts.transpose(0, 2, 1).reshape(-1, 8)
    assert len(np.unique(by_place, axis=0)) == 40 * len(seeds)
    # 7680 of 2^23 values: about 3.5 repeated ones by chance; more than 20 once in 10^9 choices of seeds
    assert u.size - len(np.unique(u)) < 20


def test_a_pool_is_drawn_from_by_its_places():
    pool = np.array([[9, 2, 5, 7, 0, 1, 3, 4, 6, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]])
    prompts, _ = drawn(seeds=(1, 1), steps=300, prompts=10, batch=3, pool=(pool, [4, 10]))
    assert set(prompts[..., 0].reshape(-1)) == {9, 2, 5, 7}
    whole, _ = drawn(seeds=(1,), steps=300, prompts=10, batch=3)
    assert_array_equal(prompts[..., 1], whole[..., 0])


def test_samples_beyond_a_lanes_group_are_never_drawn():
    program = Program(Layout(1, (("rloo", 16),)), 10, 3, 2, 4, group_masked=True)
    sizes = jnp.asarray([2, 4, 3, 1] * 4)[None, None]
    _, u = drawn(batch=2, group=4, prompts=10)
    masked = np.asarray(program._samples(jnp.asarray(u[0]), {"group_size": sizes}))  # [B, G, L]
    for lane, size in enumerate(sizes[0, 0].tolist()):
        assert_array_equal(masked[:, :size, lane], u[0, :, :size, 0])
        assert_array_equal(masked[:, size:, lane], -2)  # below every threshold
    bare = Program(Layout(1, (("rloo", 16),)), 10, 3, 2, 4)
    assert_array_equal(bare._samples(jnp.asarray(u[0]), {"group_size": sizes}), u[0])


@cache
def many_batches():
    return drawn(seeds=(5,), steps=20_000, prompts=200, batch=32, group=1)[0][..., 0]  # [20000, 32]


def test_all_ordered_batches_are_equally_likely():
    steps, prompts, batch = 200_000, 7, 4
    chosen = drawn(seeds=(11,), steps=steps, prompts=prompts, batch=batch, group=1)[0][..., 0]
    count = np.bincount(chosen @ prompts ** np.arange(batch), minlength=prompts**batch)
    tuples = np.array(list(permutations(range(prompts), batch))) @ prompts ** np.arange(batch)
    assert count[tuples].sum() == steps
    expected = steps / len(tuples)  # 238 each
    assert chi2.sf(((count[tuples] - expected) ** 2).sum() / expected, len(tuples) - 1) > FALSE_ALARM


def test_every_prompt_and_every_ordered_pair_of_slots_is_equally_likely():
    chosen = many_batches()
    steps, batch = chosen.shape
    for b in range(batch):
        count = np.bincount(chosen[:, b], minlength=200)
        # 32 slots: 1e-4 / 32 each
        assert chi2.sf(((count - steps / 200) ** 2).sum() / (steps / 200), 199) > FALSE_ALARM / batch
    for one, other in [(0, 1), (1, 0), (0, 31), (15, 16), (30, 31)]:
        # prompts in four quarters, which two distinct prompts share with chance 50 * 49 / (200 * 199)
        table = np.zeros((4, 4))
        np.add.at(table, (chosen[:, one] // 50, chosen[:, other] // 50), 1)
        expected = steps * np.where(np.eye(4, dtype=bool), 50 * 49, 50 * 50) / (200 * 199)
        assert chi2.sf(((table - expected) ** 2 / expected).sum(), 15) > FALSE_ALARM / 5


def test_every_prompt_and_every_pair_of_prompts_is_equally_often_in_a_batch():
    """Inclusions of a simple random sample are correlated; the statistics are χ² in the eigenspaces of the covariance.

    With p_k the chance that k given prompts are all in a batch: the counts of prompts have variance
    n (p_1 - p_2) in each direction of equal sum (P - 1 of them), the counts of pairs n (p_2 - 2 p_3 + p_4) in each of
    the P (P - 3) / 2 directions in which every prompt's pairs sum to zero.
    """
    chosen, P = many_batches(), 200
    n, batch = chosen.shape
    inside = np.zeros((n, P), np.float32)
    inside[np.arange(n)[:, None], chosen] = 1
    p = [np.prod([(batch - i) / (P - i) for i in range(k)]) for k in range(5)]
    pairs = (inside.T @ inside).astype(np.float64)
    single = np.diag(pairs)
    statistic = ((single - single.mean()) ** 2).sum() / (n * (p[1] - p[2]))
    assert chi2.sf(statistic, P - 1) > FALSE_ALARM / 2
    assert single.sum() == n * batch
    np.fill_diagonal(pairs, 0)
    of_prompt = (pairs.sum(0) - pairs.sum() / P) / (P - 2)
    rest = pairs - pairs.sum() / (P * (P - 1)) - of_prompt[:, None] - of_prompt[None]
    statistic = (rest[np.triu_indices(P, 1)] ** 2).sum() / (n * (p[2] - 2 * p[3] + p[4]))
    low, high = chi2.cdf(statistic, P * (P - 3) / 2), chi2.sf(statistic, P * (P - 3) / 2)
    assert min(low, high) > FALSE_ALARM / 4


def test_prompts_and_answers_are_independent():
    prompts, u = drawn(seeds=(21,), steps=100_000, prompts=8, batch=2, group=2)
    prompts, bins = prompts[..., 0], (u[..., 0] * 8).astype(int)
    pairs = [
        (prompts[:, 0], bins[:, 0, 0]),
        (prompts[:, 0], bins[:, 1, 0]),
        (prompts[:, 1], bins[:, 0, 1]),
        (bins[:, 0, 0], bins[:, 0, 1]),  # the two words of one block
        (bins[:, 0, 0], bins[:, 1, 0]),
        (bins[:-1, 0, 0], bins[1:, 0, 0]),  # one step and the next
        (prompts[:-1, 0], prompts[1:, 0]),
    ]
    for one, other in pairs:
        table = np.zeros((8, 8))
        np.add.at(table, (one, other), 1)
        assert chi2_contingency(table).pvalue > FALSE_ALARM / len(pairs)


def test_seeds_are_independent_of_their_neighbours():
    _, u = drawn(seeds=tuple(range(8)), steps=20_000, prompts=8, batch=1, group=1)
    bins = (u[:, 0, 0] * 8).astype(int)
    for one, other in zip(range(7), range(1, 8), strict=True):
        table = np.zeros((8, 8))
        np.add.at(table, (bins[:, one], bins[:, other]), 1)
        assert chi2_contingency(table).pvalue > FALSE_ALARM / 7
