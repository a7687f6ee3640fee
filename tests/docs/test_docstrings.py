"""Every public class and function has an example in its docstring, and all examples run.

Left out are errors and warnings, which are caught as the example of `SiftError` shows, and what has
no docstring of its own: type aliases and constants. Protocols have examples like classes.
"""

import doctest
import importlib
import importlib.util
import inspect
import re
import sys

import pytest

import sift_core
from tests.docs.docstring_names import OF_FRAMEWORKS, SHARED
from tests.integrations.test_public_names import PUBLIC_PACKAGES

PACKAGES = [
    *PUBLIC_PACKAGES,
    "sift_core.documents",
    "sift_core.evaluation",
    "sift_core.service",
    "sift_core.testing",
    *OF_FRAMEWORKS,
]
SLOW = {"sift_core.answering", "sift_core.answering.chats", "sift_core.embedders"}  # load models
SLOW_NAMES = {"Answer", "ChatSIFT", "EngineLLM", "SIFTAnswer", "SIFTSynthesizer", "diagnose"}
FLAGS = doctest.NORMALIZE_WHITESPACE


def is_there(package):
    return importlib.util.find_spec(package.split(".")[0]) is not None


def public_names():
    for package in filter(is_there, PACKAGES):
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", None) or ["HashingEmbedder"]:
            is_slow = package in SLOW or name in SLOW_NAMES
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(package, name, marks=marks, id=f"{package}.{name}")


def namespace(package, source):
    """Return the public names of the package and of `sift_core`, and what the example needs."""
    module = importlib.import_module(package)
    public = [(sift_core, sift_core.__all__), (module, getattr(module, "__all__", vars(module)))]
    names = {name: getattr(owner, name) for owner, listed in public for name in listed}
    for name, make in {**SHARED, **OF_FRAMEWORKS.get(package, {})}.items():
        if re.search(rf"\b{name}\b", source):
            names[name] = make()
    return names


def examples_of(value, name):
    """Return the examples of a class or function, and of its methods."""
    module = sys.modules[value.__module__]
    found = doctest.DocTestFinder(exclude_empty=True).find(value, name, module=module, globs={})
    return [one for one in found if one.examples]


def failures_of(test, package):
    """Run the examples of one docstring, and return what failed."""
    test.globs = namespace(package, "\n".join(example.source for example in test.examples))
    said = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=said.append)
    return "".join(said)


def needs_example(value):
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    is_documented = inspect.isclass(value) or inspect.isroutine(value)
    return is_documented and (not is_error or value is sift_core.SiftError)


@pytest.mark.parametrize(("package", "name"), list(public_names()))
def test_a_public_name_has_examples_that_run(package, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    value = getattr(importlib.import_module(package), name)
    if not needs_example(value):
        pytest.skip("an error, a type alias or a constant")
    examples = examples_of(value, name)
    assert any(one.name == name for one in examples), f"{package}.{name} has no example"
    for one in examples:
        assert not failures_of(one, package)


def test_a_wrong_example_fails():
    parse = doctest.DocTestParser().get_doctest
    assert "Got:\n    2\n" in failures_of(parse(">>> 1 + 1\n3\n", {}, "", None, None), "sift_core")
    assert not failures_of(parse(">>> 1 + 1\n2\n", {}, "", None, None), "sift_core")


def test_a_name_without_an_example_is_found():
    def undocumented():
        """Return nothing."""

    assert needs_example(undocumented)
    assert not needs_example(sift_core.AnswerError)
