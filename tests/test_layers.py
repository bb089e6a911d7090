"""Imports go one way; third-party packages stay where they belong; the core sums floats only through `numerics`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlvr_jax

FOLDER = Path(rlvr_jax.__file__).parent
SOURCES = {
    ".".join(path.relative_to(FOLDER).with_suffix("").parts): ast.parse(path.read_text())
    for path in sorted(FOLDER.rglob("*.py"))
    if path.relative_to(FOLDER).parts[0] not in ("figures", "sweeps")  # an installed package has them inside
}
PACKAGE = "__init__"  # loads the others when they are first used, so it stands outside of the order

#: From the bottom up, with the third-party packages that each module may import: a module imports only from above it.
LAYERS = {
    "types": {"numpy"},
    "kept": {"numpy"},
    "schedules": {"numpy"},
    "grid": {"numpy"},
    "devices": {"jax", "jaxlib"},
    "shards": set(),
    "ports": set(),
    "stats.replicates": {"numpy", "xarray"},
    "stats.bootstrap": {"numpy"},
    "stats.student": {"numpy", "scipy"},
    "stats.multiple": {"numpy"},
    "stats.distribution": {"numpy", "scipy", "xarray"},
    "stats.summaries": {"numpy", "xarray"},
    "stats.contrasts": {"numpy", "scipy", "xarray"},
    "stats.selection": {"numpy", "xarray"},
    "stats.curves": {"numpy", "scipy", "xarray"},
    "stats.sources": {"numpy", "xarray"},
    "stats.planning": {"numpy", "scipy"},
    "stats.coverage": {"numpy", "xarray"},
    "stats.__init__": set(),
    "files": set(),
    "lock": set(),
    "receipts": set(),
    "disk": {"numpy", "zarr"},
    "manifest": set(),
    "store": {"numpy", "xarray", "zarr"},
    "faults": {"numpy"},
    "inspection": {"numpy"},
    "problems": {"numpy"},
    "words": set(),
    "judging": {"numpy", "xarray"},
    "claims": set(),
    "crossings": {"numpy", "xarray"},
    "theory": {"numpy"},
    "export": {"pandas", "xarray"},
    "captions": {"numpy", "xarray"},
    "table": {"numpy", "xarray"},
    "stats_contrasts": {"numpy", "xarray"},
    "stats_table": {"numpy", "xarray"},
    "stats_command": {"tyro"},
    "plots": {"matplotlib", "numpy", "xarray"},
    "charts": {"matplotlib", "numpy", "xarray"},
    "figure_script": {"numpy", "xarray"},
    "shipped": set(),
    "stops": set(),
    "drawing": {"xarray"},
    "lecture_tables": {"numpy", "xarray"},
    "reference": {"numpy"},
    "reference_chains": {"numpy"},
    "reference_arithmetic_batch": {"numpy"},
    "reference_arithmetic": {"numpy"},
    "numerics": {"jax"},
    "draws": {"jax"},
    "lanes": {"jax"},
    "chain": {"jax", "numpy"},
    "rollouts": {"jax"},
    "advantages": {"jax", "numpy"},
    "engine": {"jax", "numpy"},
    "single": {"jax", "numpy"},
    "bandit_program": {"jax"},
    "bandit": {"jax", "numpy", "scipy"},
    "arithmetic_program": {"jax", "numpy"},
    "arithmetic_world": {"numpy"},
    "arithmetic": {"jax", "numpy"},
    "worlds": set(),
    "plan": {"numpy"},
    "addresses": {"numpy"},
    "tasks": {"jax", "numpy"},
    "template": {"numpy", "zarr"},
    "progress": {"tqdm"},
    "results": {"jax", "numpy", "xarray"},
    "session": {"jax", "numpy"},
    "worker": set(),
    "executors": {"dask", "distributed", "mpi4py"},
    "dispatch": set(),
    "launch": {"jax"},
    "declaration": {"numpy"},
    "driver": {"numpy", "xarray"},
    "checks": set(),
    "spec": {"xarray"},
    "lecture": {"xarray"},
    "report": {"numpy", "xarray"},
    "bench": set(),
    "bench_bandit": {"jax", "numpy"},
    "bench_tool": {"numpy"},
    "options": {"tyro"},
    "plan_command": {"jax"},
    "store_commands": {"tyro"},
    "lecture_command": {"tyro"},
    "cli": {"tyro", "xarray"},
    "__main__": set(),
}

#: Arithmetic on lanes, in which a float reduction would depend on the shape. `numerics` holds the pinned ones.
CORE = ["advantages", "arithmetic_program", "bandit_program", "chain", "draws", "lanes", "rollouts"]

#: Functions of core modules that run on the host, in NumPy.
ON_THE_HOST = {("advantages", "advantage")}

#: The mean of a group, which is a pinned sum.
PINNED = {("advantages", "self.mean"), ("advantages", "group.mean")}

REDUCTIONS = {
    *("sum", "mean", "average", "std", "var", "max", "min", "amax", "amin", "prod", "nansum", "nanmean", "median"),
    *("cumsum", "cumprod", "cumulative_sum", "dot", "matmul", "vdot", "einsum", "tensordot", "norm", "trapezoid"),
    *(
        "softmax",
        "log_softmax",
        "logsumexp",
        "reduce",
        "psum",
        "pmean",
        "associative_scan",
        "reduce_sum",
        "segment_sum",
    ),
}


def imports(tree, module):
    """``(imported module, line)`` for the imports of a module, wherever they stand; names of the package in full."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}.py, line {node.lineno}: imports are written in full"
            if node.module == "rlvr_jax":
                yield from ((f"rlvr_jax.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def arrows():
    for module, tree in SOURCES.items():
        for name, line in imports(tree, module):
            if name.startswith("rlvr_jax."):
                yield module, _module(name.removeprefix("rlvr_jax.")), line


def _module(name):
    """The module that an imported name is, or is in; a package itself is its ``__init__``."""
    if f"{name}.__init__" in SOURCES:
        return f"{name}.__init__"
    return name if name in SOURCES else name.rpartition(".")[0] or name


def test_every_module_has_a_place_in_the_order():
    assert set(LAYERS) == set(SOURCES) - {PACKAGE}


def test_imports_go_one_way():
    order = list(LAYERS)
    wrong = [
        f"{module}.py, line {line}: imports {imported}"
        for module, imported, line in arrows()
        if module != PACKAGE and order.index(imported) >= order.index(module)
    ]
    assert wrong == []


def test_the_package_itself_imports_only_what_costs_nothing():
    at_the_top = {
        name
        for node in SOURCES[PACKAGE].body
        for name, _ in imports(ast.Module([node], []), PACKAGE)
        if not isinstance(node, ast.If)
    }
    assert {name for name in at_the_top if name.startswith("rlvr_jax")} == {"rlvr_jax.devices", "rlvr_jax.types"}


def third_party(module):
    return {
        name.split(".")[0]
        for name, _ in imports(SOURCES[module], module)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "rlvr_jax"}
    }


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_third_party_packages_stay_where_they_belong(module):
    assert third_party(module) <= LAYERS.get(module, set())


def test_matplotlib_is_imported_by_two_modules_and_the_oracle_is_plain_numpy():
    assert [module for module in SOURCES if "matplotlib" in third_party(module)] == ["charts", "plots"]
    oracle = {module for module in SOURCES if module.startswith("reference")}
    assert {package for module in oracle for package in third_party(module)} == {"numpy"}
    assert {imported for module, imported, _ in arrows() if module in oracle} <= {"types", *oracle}


def loaded_by(statement):
    """Top-level modules that are loaded in a fresh process after ``statement``."""
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    return set(run.stdout.split())


def test_importing_the_package_loads_neither_jax_nor_the_rest():
    loaded = loaded_by("import rlvr_jax")
    assert "rlvr_jax" in loaded
    assert loaded & {"jax", "jaxlib", "optax", "xarray", "zarr", "matplotlib", "scipy", "tqdm"} == set()


def test_figures_and_tables_are_drawn_without_jax():
    modules = (
        *("captions", "charts", "crossings", "export", "figure_script", "inspection", "plots"),
        *("reference_arithmetic", "stats", "store", "table", "theory"),
    )
    loaded = loaded_by("; ".join(f"import rlvr_jax.{module}" for module in modules))
    assert "matplotlib" in loaded
    assert loaded & {"jax", "jaxlib", "optax"} == set()


def reductions(node, module):
    """Float reductions in the syntax tree of a core module, as ``line: source``; functions of the host are left out."""
    if isinstance(node, ast.FunctionDef) and (module, node.name) in ON_THE_HOST:
        return
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    if called and not counts(node):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        pinned = (module, ast.unparse(node.func)) in PINNED
        if isinstance(node.func, ast.Attribute) and name in REDUCTIONS and not pinned:
            yield f"{node.lineno}: {ast.unparse(node)}"
    elif isinstance(node, ast.Attribute) and node.attr in REDUCTIONS and isinstance(node.value, ast.Name):
        if node.value.id in ("jnp", "lax", "np"):
            yield f"{node.lineno}: {ast.unparse(node)}"
    elif isinstance(node, ast.MatMult):
        yield "a @ b"
    for child in ast.iter_child_nodes(node):
        if not (called and child is node.func):
            yield from reductions(child, module)
        elif isinstance(child, ast.Attribute):
            yield from reductions(child.value, module)


def counts(call):
    """Whether a call is ``jnp.sum(..., dtype=jnp.int32)``: whole numbers may be added in any order."""
    dtypes = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "dtype"]
    return ast.unparse(call.func) == "jnp.sum" and dtypes in (["jnp.int32"], ["jnp.uint32"])


@pytest.mark.parametrize("module", CORE)
def test_the_core_reduces_floats_only_through_numerics(module):
    assert list(reductions(SOURCES[module], module)) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("x.sum(0)", True),
        ("x.mean()", True),
        ("(a * b).max(axis=1)", True),
        ("jnp.sum(x, 0)", True),
        ("jnp.sum(x, dtype=jnp.float32)", True),
        ("jnp.mean(x)", True),
        ("jax.nn.softmax(x)", True),
        ("jax.nn.logsumexp(x)", True),
        ("jnp.cumsum(x)", True),
        ("a @ b", True),
        ("stage(jnp.sum, x)", True),
        ("jax.tree.map(jnp.max, x)", True),
        ("x.sum(0).astype(int)", True),
        ("jnp.add.reduce(x)", True),
        ("jnp.sum(x, 0, dtype=jnp.int32)", False),
        ("total(x)", False),
        ("largest(x, 1)", False),
        ("sum(lanes for _, lanes in blocks)", False),
        ("max(1, 2)", False),
        ("jnp.maximum(x, y)", False),
    ],
)
def test_the_search_for_reductions_finds_them(line, found):
    assert bool(list(reductions(ast.parse(line), "lanes"))) is found


def test_all_is_sorted_complete_and_resolves():
    assert rlvr_jax.__all__ == sorted(rlvr_jax.__all__)
    assert dir(rlvr_jax) == rlvr_jax.__all__
    for name in rlvr_jax.__all__:
        assert getattr(rlvr_jax, name) is not None
    # what is loaded when first used is what type checkers are told
    told = {
        alias.asname or alias.name
        for node in SOURCES[PACKAGE].body
        if isinstance(node, ast.If)
        for inner in node.body
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    assert told | {"InvalidInput"} == set(rlvr_jax.__all__)
    assert set(rlvr_jax._FUNCTIONS) <= set(rlvr_jax.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rlvr_jax' has no attribute 'sweeep'"):
        rlvr_jax.sweeep  # noqa: B018
