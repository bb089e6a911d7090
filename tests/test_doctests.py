"""The examples in docstrings are run, and public functions have docstrings."""

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import rlvr_jax

MODULES = ["rlvr_jax", *(module.name for module in pkgutil.walk_packages(rlvr_jax.__path__, "rlvr_jax."))]
DOCUMENTED = [
    *("addresses", "advantages", "bandit", "checks", "claims", "declaration", "disk", "drawing", "draws", "driver"),
    *(
        "export",
        "files",
        "inspection",
        "kept",
        "lecture",
        "lecture_tables",
        "lock",
        "manifest",
        "numerics",
        "progress",
        "receipts",
        "report",
    ),
    *("results", "schedules", "session", "store", "tasks", "template", "theory", "words"),
]
WITH_EXAMPLES = [
    *("addresses", "advantages", "bandit", "captions", "draws", "engine", "export", "judging", "kept"),
    *("lecture_tables", "numerics", "progress", "results", "schedules", "table", "theory", "words"),
]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example that writes a file leaves nothing behind
    result = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    if name.removeprefix("rlvr_jax.") in WITH_EXAMPLES:
        assert result.attempted > 0


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_functions_and_classes_have_docstrings(name):
    module = import_module(f"rlvr_jax.{name}")
    missing = []
    for label, value in vars(module).items():
        if label.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) and not inspect.getdoc(value):
            missing.append(label)
        if inspect.isclass(value):
            if not vars(value).get("__doc__"):
                missing.append(label)
            missing += [
                f"{label}.{method}"
                for method, member in vars(value).items()
                if not method.startswith("_") and inspect.isfunction(member) and not inspect.getdoc(member)
            ]
    assert missing == []
