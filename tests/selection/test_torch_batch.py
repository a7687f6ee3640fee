import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sift_core import LinearKernel, SIFTSelector  # noqa: E402
from sift_core.errors import InvalidInputError  # noqa: E402
from sift_core.selection.torch_batch import select_batch  # noqa: E402
from tests.selection.oracle import KERNELS, under  # noqa: E402

REPEATS = pytest.mark.parametrize("allow_repeats", [True, False], ids=["repeats", "no repeats"])
EACH_KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def problems(b=4, n=30, d=8, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((b, d))), torch.from_numpy(
        rng.standard_normal((b, n, d))
    )


def sequential(queries, pools, n_select, **settings):
    selector = SIFTSelector(backend="numpy", **settings)
    return [
        selector.select(query.numpy(), pool.numpy(), n_select)
        for query, pool in zip(queries, pools, strict=True)
    ]


def assert_all_same(batch, expected):
    for positions, variances, one in zip(*(part.cpu() for part in batch), expected, strict=True):
        assert positions.tolist() == one.positions.tolist()
        np.testing.assert_allclose(variances, one.variances, rtol=0, atol=1e-9)


@REPEATS
@pytest.mark.parametrize("noise", [1e-6, 1e-2, 10.0])
@EACH_KERNEL
def test_equals_the_sequential_selector(kernel, noise, allow_repeats):
    settings = under(noise, kernel, allow_repeats=allow_repeats)
    queries, pools = problems()
    for n_select in (0, 5, 40):
        batch = select_batch(queries, pools, n_select, **settings)
        assert_all_same(batch, sequential(queries, pools, n_select, **settings))


@REPEATS
@EACH_KERNEL
def test_copies_tie_to_the_lowest_position(kernel, allow_repeats):
    queries, pools = problems(n=10)
    pools = torch.cat([pools, pools, pools], dim=1)
    settings = under(0.01, kernel, allow_repeats=allow_repeats)
    batch = select_batch(queries, pools, 12, **settings)
    assert_all_same(batch, sequential(queries, pools, 12, **settings))


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 0, 3)], ids=["no query", "no candidate"])
def test_nothing_gives_nothing(shape):
    b, n, d = shape
    positions, variances = select_batch(torch.ones(b, d), torch.ones(b, n, d), 3)
    n_steps = 3 if n else 0
    assert (positions.shape, variances.shape) == ((b, n_steps), (b, n_steps + 1))
    assert variances.tolist() == [[1.0]] * b


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_embeddings_of_few_bits_are_taken_as_they_are(dtype):
    queries, pools = ((8 * part).to(dtype) for part in problems())
    batch = select_batch(queries, pools, 6)
    assert_all_same(batch, sequential(queries.double(), pools.double(), 6, allow_repeats=True))
    assert batch[1].dtype == torch.float64


def test_inputs_are_not_changed_and_gradients_not_followed():
    queries, pools = problems()
    queries.requires_grad_()
    before = queries.detach().clone(), pools.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        batch = select_batch(queries, pools, 5)
    assert torch.equal(queries, before[0])
    assert torch.equal(pools, before[1])
    assert not batch[1].requires_grad
    assert_all_same(batch, sequential(*before, 5, allow_repeats=True))


QUERIES, POOLS = torch.ones(2, 3), torch.ones(2, 4, 3)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((QUERIES.numpy(), POOLS, 1), {}, "`queries` must be a real torch tensor"),
        ((QUERIES, POOLS[0], 1), {}, "3 dimensions"),
        ((QUERIES[:1], POOLS, 1), {}, r"shape \(2, 3\) on cpu"),
        ((QUERIES, POOLS[..., :2], 1), {}, r"shape \(2, 2\) on cpu .* got \(2, 3\)"),
        ((torch.ones(2, 0), torch.ones(2, 4, 0), 1), {}, "not all zero"),
        ((QUERIES * torch.nan, POOLS, 1), {}, "`queries` must be finite"),
        ((QUERIES, POOLS * 0, 1), {}, "`candidates` must be finite and not all zero"),
        ((QUERIES, POOLS, -1), {}, "n_select"),
        ((QUERIES, POOLS, 1), under(0.0), "must be a finite number > 0"),
        ((QUERIES, POOLS, 1), {"kernel": LinearKernel(normalize=False)}, "or an RBFKernel"),
    ],
)
def test_refuses_what_it_cannot_use(arguments, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        select_batch(*arguments, **settings)


@pytest.mark.gpu
@REPEATS
@EACH_KERNEL
def test_cuda_gives_the_same(kernel, allow_repeats):
    queries, pools = problems(b=64, n=200, d=384)
    settings = under(0.01, kernel, allow_repeats=allow_repeats)
    batch = select_batch(queries.cuda(), pools.cuda(), 50, **settings)
    assert_all_same(batch, sequential(queries, pools, 50, **settings))
