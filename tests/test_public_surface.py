import importlib
import inspect

import pytest

import sift_core
import sift_core.errors

PACKAGES = [
    "sift_core",
    "sift_core.answering",
    "sift_core.sources",
    "sift_core.evaluation",
    "sift_core.service",
]
VENDORS = {"FaissSource": "faiss", "QdrantSource": "qdrant_client", "create_app": "fastapi"}


def public(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        if name in VENDORS:
            pytest.importorskip(VENDORS[name])
        yield name, getattr(module, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves_and_is_documented(package):
    for name, value in public(package):
        doc = value.__doc__ or ""
        assert doc.strip(), name
        # A dataclass without a docstring gets its signature for one.
        assert not doc.startswith(f"{name}("), name


def test_every_error_is_drawn_in_the_tree():
    errors = {
        name
        for name, value in vars(sift_core.errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    for name in errors:
        assert name in sift_core.errors.__doc__
        ancestor = UserWarning if name.endswith("Warning") else sift_core.SiftError
        assert issubclass(getattr(sift_core.errors, name), ancestor)


@pytest.mark.parametrize(
    ("error", "standard"),
    [
        (sift_core.InvalidInputError, ValueError),
        (sift_core.MissingDependencyError, ImportError),
        (sift_core.errors.NumericalError, ArithmeticError),
    ],
)
def test_an_error_is_also_the_standard_one(error, standard):
    assert issubclass(error, standard)


SELECTORS = [
    getattr(sift_core, name)
    for name in sift_core.__all__
    if name.endswith("Selector") and name != "Selector"
]


@pytest.mark.parametrize("selector", SELECTORS)
def test_every_selector_is_called_in_one_way(selector):
    assert isinstance(selector(), sift_core.Selector)
    parameters = inspect.signature(selector.select).parameters
    assert list(parameters)[1:4] == ["query", "candidates", "n_select"]
    optional = list(parameters.values())[4:]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in optional)
    settings = inspect.signature(selector).parameters.values()
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in settings)
