import contextlib

import numpy as np
import pytest

from sift_core.errors import InvalidInputError, NumericalError
from sift_core.selection import LinearKernel, RBFKernel, SIFTSelector
from sift_core.types import StopReason

torch = pytest.importorskip("torch")

from sift_core.selection import torch_batch  # noqa: E402  # needs torch
from sift_core.selection.torch_batch import GraphedSelector, select_batch  # noqa: E402

KERNELS = {
    "linear": LinearKernel(),
    "raw linear": LinearKernel(normalize=False),
    "rbf": RBFKernel(length_scale=0.1**0.5),
    "wide rbf": RBFKernel(length_scale=1.0),
}
# More choices than dimensions, than candidates; both ways to make columns (n <= 4 N and not).
SHAPES = [(1, 5, 3), (30, 24, 12), (20, 6, 40), (200, 5, 8), (90, 16, 20)]


def problems(seed=0, b=4, n=30, d=24):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((b, d)) + 0.4, rng.standard_normal((b, n, d)) + 0.4


def select_each(queries, candidates, n_select, **setting):
    """Return what the sequential selector chooses, query by query."""
    selector = SIFTSelector(**setting, backend="numpy")
    return [selector.select(*one, n_select) for one in zip(queries, candidates, strict=True)]


def select_together(queries, candidates, n_select, **setting):
    tensors = torch.as_tensor(queries), torch.as_tensor(candidates)
    return select_batch(*tensors, n_select, **setting).selections()


def assert_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.positions.tolist() == theirs.positions.tolist()
        np.testing.assert_allclose(ours.variances, theirs.variances, rtol=0, atol=1e-10)
        assert ours.stop_reason == theirs.stop_reason


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-6, 1e-4, 1e-2, 1.0, 10.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_sequential_selector(kernel, noise_variance, allow_repeats):
    setting = {
        "kernel": KERNELS[kernel],
        "noise_variance": noise_variance,
        "allow_repeats": allow_repeats,
    }
    for n, d, n_select in SHAPES:
        batch = problems(n, n=n, d=d)
        assert_same(
            select_together(*batch, n_select, **setting), select_each(*batch, n_select, **setting)
        )


def test_one_observation_by_hand():
    # c = 0.6, λ = 0.5: σ² = 1 - c² / (1 + λ) = 1 - 0.36 / 1.5 = 0.76
    (chosen,) = select_together([[1.0, 0.0]], [[[0.6, 0.8]]], 1, noise_variance=0.5)
    assert chosen.variances == pytest.approx([1.0, 0.76])


def test_the_defaults_are_the_papers_setting():
    batch = problems(n=4, d=8)
    paper = {"kernel": LinearKernel(), "noise_variance": 0.01, "allow_repeats": True}
    assert_same(select_together(*batch, 9), select_each(*batch, 9, **paper))


@pytest.mark.parametrize("kernel", KERNELS)
def test_columns_and_the_matrix_of_all_give_the_same(monkeypatch, kernel):
    batch = problems(n=40)
    by_matrix = select_together(*batch, 20, kernel=KERNELS[kernel])
    monkeypatch.setitem(torch_batch.GRAM_CANDIDATES_A_CHOICE, "cpu", 0)
    assert_same(select_together(*batch, 20, kernel=KERNELS[kernel]), by_matrix)


def test_the_result_is_on_the_inputs_device_in_float64():
    queries, candidates = (torch.as_tensor(part).float() for part in problems())
    found = select_batch(queries, candidates, 5)
    assert (found.positions.shape, found.positions.dtype) == ((4, 5), torch.int64)
    assert (found.variances.shape, found.variances.dtype) == ((4, 6), torch.float64)
    assert found.positions.device == candidates.device
    assert len(found) == 4


@pytest.mark.parametrize("n_select", [0, 3])
@pytest.mark.parametrize("allow_repeats", [True, False])
def test_an_empty_pool_gives_nothing(n_select, allow_repeats):
    found = select_together(
        np.ones((2, 3)), np.ones((2, 0, 3)), n_select, allow_repeats=allow_repeats
    )
    for one in found:
        assert len(one) == 0
        assert one.variances == pytest.approx([1.0])
        reason = StopReason.POOL_EXHAUSTED if n_select else StopReason.N_SELECT
        assert one.stop_reason is reason


def test_an_empty_batch_gives_nothing():
    assert select_together(np.ones((0, 3)), np.ones((0, 5, 3)), 2) == []


# Copies


def copied(seed, *, n=12, times=4, d=16):
    """Return problems whose pools hold every row several times, in no order."""
    queries, candidates = problems(seed, n=n, d=d)
    order = np.random.default_rng(seed).permutation(n * times) % n
    return queries, candidates[:, order]


def copies_are_chosen_in_order(found, candidates, allow_repeats):
    """Check that every choice is the lowest one of its copies that could be chosen."""
    for rows, one in zip(candidates, found, strict=True):
        taken = np.zeros(len(rows), dtype=bool)
        for position in one.positions.tolist():
            is_like = (rows == rows[position]).all(axis=1)
            if position != np.flatnonzero(is_like & ~taken)[0]:
                return False
            taken[position] = not allow_repeats
    return True


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-6, 1e-2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_copies_tie_to_the_lowest_position(kernel, noise_variance, allow_repeats):
    setting = {
        "kernel": KERNELS[kernel],
        "noise_variance": noise_variance,
        "allow_repeats": allow_repeats,
    }
    for n_select in (11, 40):
        queries, candidates = copied(0)
        found = select_together(queries, candidates, n_select, **setting)
        assert copies_are_chosen_in_order(found, candidates, allow_repeats)
        assert_same(found, select_each(queries, candidates, n_select, **setting))


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("n_select", [11, 40], ids=["columns", "matrix"])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_copies_tie_although_their_products_are_rounded_differently(
    monkeypatch, kernel, allow_repeats, n_select, validate
):
    setting = {"kernel": KERNELS[kernel], "noise_variance": 1e-9, "allow_repeats": allow_repeats}
    generator = torch.Generator().manual_seed(0)
    product = torch.bmm

    def rounded(a, b):
        exact = product(a, b)
        noise = torch.randn(exact.shape, generator=generator, dtype=exact.dtype)
        return exact * (1 + 1e-15 * noise)

    norm = torch.linalg.vector_norm

    def rounded_norm(rows, dim, ord=2, dtype=None):
        exact = norm(rows, ord=ord, dim=dim, dtype=dtype)
        noise = torch.randn(exact.shape, generator=generator, dtype=exact.dtype)
        return exact * (1 + 1e-15 * noise)

    monkeypatch.setattr(torch, "bmm", rounded)
    monkeypatch.setattr(torch.linalg, "vector_norm", rounded_norm)
    queries, candidates = copied(0)
    found = select_together(queries, candidates, n_select, **setting, validate=validate)
    assert copies_are_chosen_in_order(found, candidates, allow_repeats)


def test_minus_zero_is_zero_in_a_copy():
    candidates = np.array([[[0.0, 1.0, 2.0], [3.0, 1.0, 0.0], [-0.0, 1.0, 2.0]]])
    keys = torch_batch._Keys.of(torch.as_tensor(candidates), None)
    assert keys.first_equal_rows().tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_copies_are_found_and_others_are_not(dtype):
    # Signs alone differ, so many sums of bits could: the rows decide.
    rng = np.random.default_rng(0)
    signs = torch.as_tensor(rng.choice([-1.0, 1.0], size=(2, 40, 201))).to(dtype)
    signs[1] *= 1.5
    signs[:, 30:] = signs[:, :10]
    keys = torch_batch._Keys.of(signs, None)
    assert keys.are_repeated()
    assert keys.first_equal_rows().tolist() == [[*range(30), *range(10)]] * 2
    assert not torch_batch._Keys.of(signs[:, :30], None).are_repeated()


def test_rows_that_do_not_exist_are_no_copies():
    rows, mask = torch.zeros(2, 3, 4), torch.tensor([[True, False, False], [False, False, True]])
    assert not torch_batch._Keys.of(rows, mask).are_repeated()


def test_unlike_rows_with_equal_keys_are_no_copies():
    rows = torch.zeros(1, 3, 4 * torch_batch.KEY_COORDINATES)
    rows[0, :, 1] = torch.tensor([1.0, 2.0, 1.0])  # a coordinate that the key leaves out
    keys = torch_batch._Keys.of(rows, None)
    assert keys.are_repeated()
    assert keys.first_equal_rows().tolist() == [[0, 1, 0]]


def test_ties_go_to_the_lowest_position():
    values = torch.tensor([[1.0, 3.0, 3.0 * (1 + 1e-13)], [2.0, 1.0, 2.0]], dtype=torch.float64)
    values = torch.cat([values, torch.full((1, 3), -torch.inf), torch.full((1, 3), torch.nan)])
    positions, largest = torch_batch._first_largest(values, torch.arange(3))
    assert positions.tolist() == [[1], [0], [0], [2]]
    assert largest[:3].flatten().tolist() == [3.0 * (1 + 1e-13), 2.0, -np.inf]


# Pools of unequal size


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_masked_rows_do_not_exist(kernel, allow_repeats, validate):
    setting = {"kernel": KERNELS[kernel], "noise_variance": 0.1, "allow_repeats": allow_repeats}
    queries, candidates = problems(b=6, n=20)
    mask = np.random.default_rng(1).random((6, 20)) < 0.5
    mask[0], mask[1], mask[2, 1:] = True, False, False
    expected = []
    for i in range(6):
        (one,) = select_each(queries[[i]], candidates[i][mask[i]][None], 15, **setting)
        numbers = np.flatnonzero(mask[i])
        expected.append((numbers[one.positions], one.variances, one.stop_reason))
    candidates[~mask] = np.nan
    candidates[3][~mask[3]] = 0.0
    candidates[4][~mask[4]] = candidates[4][mask[4]][0]  # copies that don't exist
    found = select_together(
        queries, candidates, 15, **setting, mask=torch.as_tensor(mask), validate=validate
    )
    for one, (positions, variances, reason) in zip(found, expected, strict=True):
        assert one.positions.tolist() == positions.tolist()
        np.testing.assert_allclose(one.variances, variances, rtol=0, atol=1e-10)
        assert one.stop_reason is reason


def test_after_the_last_choice_positions_are_minus_one():
    queries, candidates = (torch.as_tensor(part) for part in problems(b=2, n=3))
    mask = torch.tensor([[True, True, True], [True, False, False]])
    found = select_batch(queries, candidates, 4, allow_repeats=False, mask=mask)
    assert found.positions[0, 3] == -1
    assert found.positions[1].tolist() == [0, -1, -1, -1]
    assert (found.variances[1, 1:] == found.variances[1, 1]).all()


def test_what_says_nothing_may_be_chosen_all_the_same():
    queries, candidates = torch.eye(3)[None, 0], torch.eye(3)[None, 1:]
    mask = torch.ones(1, 2, dtype=torch.bool)
    found = select_batch(queries, candidates, 2, allow_repeats=False, mask=mask)
    assert found.positions.tolist() == [[0, 1]]
    assert found.variances.tolist() == [[1.0, 1.0, 1.0]]


# Numbers


@pytest.mark.parametrize("factor", [1e-310, 1e-200, 1e200, 1e300])
def test_scale_is_of_no_consequence_to_unit_vectors(factor):
    queries, candidates = problems()
    expected = select_together(queries, candidates, 9)
    assert_same(select_together(queries, candidates * factor, 9), expected)


@pytest.mark.parametrize("computed", [torch.float32, torch.float64])
@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_embeddings_of_few_bits_are_taken_as_they_are(given, computed):
    queries, candidates = (torch.as_tensor(10 * part).to(given) for part in problems())
    found = select_batch(queries, candidates, 9, dtype=computed).selections()
    expected = select_batch(queries.double(), candidates.double(), 9).selections()
    assert [one.positions.tolist() for one in found] == [one.positions.tolist() for one in expected]


@pytest.mark.parametrize("factor", [1e-42, 1e-30, 1e30])
def test_float32_of_any_size(factor):
    queries, candidates = problems()
    small = torch.as_tensor(candidates * factor).float()
    found = select_batch(torch.as_tensor(queries).float(), small, 9, dtype=torch.float32)
    expected = select_batch(torch.as_tensor(queries).float().double(), small.double(), 9)
    assert torch.equal(found.positions, expected.positions)


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("noise_variance", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "wide rbf"])
def test_float32_gives_the_same_where_nothing_is_nearly_equal(
    kernel, noise_variance, allow_repeats
):
    setting = {
        "kernel": KERNELS[kernel],
        "noise_variance": noise_variance,
        "allow_repeats": allow_repeats,
    }
    queries, candidates = (torch.as_tensor(part).float() for part in problems(b=8, n=60, d=128))
    rough = select_batch(queries, candidates, 20, **setting, dtype=torch.float32)
    exact = select_batch(queries, candidates, 20, **setting)
    assert torch.equal(rough.positions, exact.positions)
    assert not torch.equal(rough.variances, exact.variances)  # it was float32
    torch.testing.assert_close(rough.variances, exact.variances, rtol=0, atol=2e-6)


def test_float32_knows_what_a_repeat_is_worth():
    # By the kernel's values alone little more than their rounding is left of it.
    setting = {"kernel": KERNELS["rbf"], "noise_variance": 1e-6}
    queries, candidates = (torch.as_tensor(part).float() for part in problems(b=8, n=30, d=8))
    rough = select_batch(queries, candidates, 60, **setting, dtype=torch.float32)
    assert torch.equal(rough.positions, select_batch(queries, candidates, 60, **setting).positions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise_variance", [1e-12, 1e-6, 1e4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_variance_never_rises(kernel, noise_variance, dtype):
    # Few dimensions and near copies: float32 takes the matrix for an indefinite one.
    queries, candidates = problems(b=32, n=8, d=2)
    near = np.random.default_rng(2).standard_normal((32, 32, 2))
    candidates = np.tile(candidates, (1, 4, 1)) + 1e-3 * near
    found = select_together(
        queries, candidates, 60, kernel=KERNELS[kernel], noise_variance=noise_variance, dtype=dtype
    )
    for one in found:
        assert np.isfinite(one.variances).all()
        assert (one.gains >= 0).all()
        assert (one.variances >= 0).all()


def test_rounding_makes_no_variance_negative():
    # s · (1 / √s)² may exceed s, and then what is left of a variance is below zero.
    queries, candidates = problems(b=200, n=1, d=5)
    raw = LinearKernel(normalize=False)
    for one in select_together(queries, candidates, 3, kernel=raw, noise_variance=1e-18):
        assert np.isfinite(one.variances).all()


def test_rounding_makes_no_kernel_value_exceed_one():
    # Cosines of 1 + 2e-16 with a length scale of 1e-8 would be kernel values of e².
    queries, _ = problems(b=200, n=1)
    kernel = RBFKernel(length_scale=1e-8)
    for one in select_together(queries, queries[:, None], 1, kernel=kernel, noise_variance=1.0):
        assert one.variances[1] >= 0.5  # 1 - 1² / (1 + λ)


@contextlib.contextmanager
def float32_products_in(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_lowered_precision_of_products_makes_float32_float64(precision):
    queries, candidates = (torch.as_tensor(part).float() for part in problems())
    exact = select_batch(queries, candidates, 9)
    with float32_products_in(precision):
        found = select_batch(queries, candidates, 9, dtype=torch.float32)
    assert torch.equal(found.variances, exact.variances)


def test_autocast_does_not_reach_the_products():
    queries, candidates = (torch.as_tensor(part).float() for part in problems())
    expected = select_batch(queries, candidates, 9, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = select_batch(queries, candidates, 9, dtype=torch.float32)
    assert torch.equal(found.variances, expected.variances)


@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
def test_permuting_the_pool_permutes_positions(allow_repeats):
    queries, candidates = problems()
    order = np.random.default_rng(3).permutation(30)
    found = select_together(queries, candidates[:, order], 20, allow_repeats=allow_repeats)
    expected = select_together(queries, candidates, 20, allow_repeats=allow_repeats)
    for ours, theirs in zip(found, expected, strict=True):
        assert order[ours.positions].tolist() == theirs.positions.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_inputs_are_not_changed_and_gradients_not_followed(kernel, dtype):
    given = [torch.as_tensor(part).to(dtype).requires_grad_() for part in problems()]
    before = [part.detach().clone() for part in given]
    found = select_batch(*given, 9, kernel=KERNELS[kernel])
    assert not found.variances.requires_grad
    for part, copy in zip(given, before, strict=True):
        assert torch.equal(part, copy)


def test_memory_layout_is_of_no_consequence():
    queries, candidates = (torch.as_tensor(part) for part in problems())
    strided = candidates.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    expected = select_batch(queries, candidates, 9)
    for validate in (True, False):
        found = select_batch(queries, strided, 9, validate=validate)
        assert torch.equal(found.positions, expected.positions)


# What is refused


def tensors(b=2, n=3, d=4):
    return torch.ones(b, d), torch.ones(b, n, d) + torch.arange(float(d))


@pytest.mark.parametrize(
    ("queries", "candidates", "message"),
    [
        (np.ones((2, 4)), torch.ones(2, 3, 4), "`queries` must be a torch tensor, got ndarray"),
        (torch.ones(2, 4), [[[1.0]]], "`candidates` must be a torch tensor, got list"),
        (torch.ones(4), torch.ones(2, 3, 4), r"`queries` must have 2 dimensions.*\(4,\)"),
        (torch.ones(2, 4), torch.ones(3, 4), r"`candidates` must have 3 dimensions.*\(3, 4\)"),
        (torch.ones(2, 4), torch.ones(3, 3, 4), "each of the 2 queries, got 3"),
        (torch.ones(2, 4), torch.ones(2, 3, 5), "4 columns like the queries, got 5"),
        (torch.ones(2, 0), torch.ones(2, 3, 0), "at least 1 number"),
        (torch.ones(2, 4, dtype=torch.complex64), torch.ones(2, 3, 4), "real numbers"),
        (torch.ones(2, 4), torch.ones(2, 3, 4).bool(), "real numbers, got dtype torch.bool"),
        (torch.ones(2, 4, device="meta"), torch.ones(2, 3, 4), "must be on cpu"),
        (torch.ones(2, 4), torch.ones(2, 3, 4, device="meta"), "on a CPU or on CUDA"),
    ],
)
def test_refuses_tensors_that_do_not_fit(queries, candidates, message):
    with pytest.raises(InvalidInputError, match=message):
        select_batch(queries, candidates, 2)


class OddKernel(LinearKernel):
    pass


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"noise_variance": 0.0}, "`noise_variance` must be"),
        ({"noise_variance": float("nan")}, "`noise_variance` must be"),
        ({"n_select": -1}, "`n_select` must be >= 0"),
        ({"n_select": 2.5}, "`n_select` must be a whole number"),
        ({"kernel": OddKernel()}, "LinearKernel or an RBFKernel, got OddKernel"),
        ({"kernel": "rbf"}, "LinearKernel or an RBFKernel, got str"),
        ({"dtype": torch.float16}, "`dtype` must be torch.float32, torch.float64 or None"),
        ({"mask": torch.ones(2, 3)}, "`mask` must be a torch tensor of bool.*float32"),
        ({"mask": np.ones((2, 3), dtype=bool)}, "`mask` must be a torch tensor.*ndarray"),
        ({"mask": torch.ones(3, 2).bool()}, r"`mask` must have shape \(2, 3\).*\(3, 2\)"),
        ({"mask": torch.ones(2, 3, device="meta").bool()}, "`mask` must be on cpu"),
    ],
)
def test_refuses_settings_out_of_range(setting, message):
    with pytest.raises(InvalidInputError, match=message):
        select_batch(*tensors(), **{"n_select": 2, **setting})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kernel", ["linear", "raw linear", "rbf"])
def test_refuses_numbers_that_are_none(kernel, value):
    queries, candidates = tensors()
    candidates[1, 2, 3] = value
    with pytest.raises(InvalidInputError, match=r"`candidates` must be finite.* \[1, 2, 3\]"):
        select_batch(queries, candidates, 2, kernel=KERNELS[kernel])
    queries[1, 0] = value
    with pytest.raises(InvalidInputError, match=r"`queries` must be finite.* \[1, 0\] \(1 such"):
        select_batch(queries, candidates, 2, kernel=KERNELS[kernel])


def test_refuses_vectors_without_a_direction():
    queries, candidates = tensors()
    candidates[1, 2] = 0.0
    with pytest.raises(InvalidInputError, match=r"all zero.*`candidates` at \[1, 2\]"):
        select_batch(queries, candidates, 2)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert len(select_batch(queries, candidates, 2, mask=mask)) == 2
    raw = {"kernel": LinearKernel(normalize=False), "noise_variance": 0.01, "allow_repeats": True}
    assert_same(
        select_together(queries, candidates, 2, **raw),
        select_each(queries.numpy(), candidates.numpy(), 2, **raw),
    )
    queries[0] = 0.0
    with pytest.raises(InvalidInputError, match=r"all zero.*`queries` at \[0\]"):
        select_batch(queries, candidates, 2)


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.float64, 1e200), (torch.float64, 1e90), (torch.float32, 1e30)]
)
def test_refuses_kernel_values_that_are_too_large(dtype, factor):
    queries, candidates = (part.double() * factor for part in tensors())
    with pytest.raises(NumericalError, match=f"too large for {dtype}"):
        select_batch(queries, candidates, 2, kernel=LinearKernel(normalize=False), dtype=dtype)


@pytest.mark.parametrize("mask", [None, torch.ones(4, 30, dtype=torch.bool)])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_without_validation_bad_numbers_stay_with_their_query(bad, allow_repeats, mask):
    queries, candidates = (torch.as_tensor(part) for part in problems())
    expected = select_batch(queries, candidates, 9, allow_repeats=allow_repeats)
    candidates[2, 5] = bad
    found = select_batch(
        queries, candidates, 9, allow_repeats=allow_repeats, mask=mask, validate=False
    )
    others = [0, 1, 3]
    assert torch.equal(found.positions[others], expected.positions[others])
    torch.testing.assert_close(found.variances[others], expected.variances[others])
    assert ((found.positions >= -1) & (found.positions < 30)).all()


# The device


@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "whole"])
@pytest.mark.parametrize("n", [40, 400], ids=["matrix", "columns"])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_read_from_the_device(monkeypatch, kernel, dtype, allow_repeats, n, is_masked):
    # Tensors on "meta" hold no numbers: whatever looks at one, or brings a tensor made on
    # the CPU, raises. Autocast and our own check know no such device.
    monkeypatch.setitem(torch_batch.GRAM_CANDIDATES_A_CHOICE, "meta", 4)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    found = select_batch(
        torch.ones(2, 24, device="meta"),
        torch.ones(2, n, 24, device="meta"),
        20,
        kernel=KERNELS[kernel],
        allow_repeats=allow_repeats,
        dtype=dtype,
        mask=torch.ones(2, n, dtype=torch.bool, device="meta") if is_masked else None,
        validate=False,
    )
    assert found.positions.shape == (2, 20)
    assert found.variances.device.type == "meta"


def test_a_graph_needs_cuda():
    with pytest.raises(InvalidInputError, match=r"must be on CUDA.*got device cpu"):
        GraphedSelector(*tensors(), 2)


@pytest.fixture
def on_cuda():
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    return tuple(torch.as_tensor(part).float().cuda() for part in copied(0))


@pytest.mark.gpu
@pytest.mark.parametrize("n_select", [5, 30])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
def test_cuda_gives_the_same(on_cuda, kernel, allow_repeats, n_select):
    setting = {"kernel": KERNELS[kernel], "allow_repeats": allow_repeats}
    expected = select_batch(*(part.cpu() for part in on_cuda), n_select, **setting)
    found = select_batch(*on_cuda, n_select, **setting)
    assert_same(found.selections(), expected.selections())


@pytest.mark.gpu
@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "whole"])
@pytest.mark.parametrize("n_select", [5, 30])
@pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
def test_cuda_never_waits(on_cuda, allow_repeats, n_select, is_masked):
    mask = torch.ones(on_cuda[1].shape[:2], dtype=torch.bool, device="cuda") if is_masked else None
    setting = {"allow_repeats": allow_repeats, "mask": mask, "validate": False}
    select_batch(*on_cuda, n_select, **setting)  # libraries' first use
    torch.cuda.set_sync_debug_mode("error")
    try:
        select_batch(*on_cuda, n_select, **setting)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_tf32_does_not_reach_the_products(on_cuda):
    exact = select_batch(*on_cuda, 30)
    with float32_products_in("high"):
        found = select_batch(*on_cuda, 30, dtype=torch.float32)
    assert torch.equal(found.variances, exact.variances)


@pytest.mark.gpu
@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "whole"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_graph_gives_the_same_for_other_numbers(on_cuda, dtype, is_masked):
    queries, candidates = on_cuda
    mask = torch.ones(candidates.shape[:2], dtype=torch.bool, device="cuda")
    masks = [mask] if is_masked else []
    setting = {"allow_repeats": False, "dtype": dtype}
    graphed = GraphedSelector(
        torch.zeros_like(queries),
        torch.zeros_like(candidates),
        60,
        mask=mask if is_masked else None,
        **setting,
    )
    for factor in (1.0, 2.0):
        changed = candidates + factor
        if is_masked:
            mask[:, 7] = factor == 2.0
        found = graphed.select(queries, changed, *masks)
        expected = select_batch(queries, changed, 60, mask=mask if is_masked else None, **setting)
        assert_same(found.selections(), expected.selections())
    with pytest.raises(InvalidInputError, match="like those of the capture"):
        graphed.select(queries[:1], candidates[:1], *masks)
