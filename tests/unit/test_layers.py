"""Imports go down.

interfaces, compat → operations, bootstrap → services, engine, adapters → records, ports → domain → errors

A folder of `work/` has these layers inside itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.tables import for_each

SOURCE = Path(__file__).parents[2] / "src"

DOMAIN = {"errors", "domain"}
PORTS = DOMAIN | {"ports", "config", "files"}
RECORDS = PORTS | {"records"}
# What each layer may import besides itself. Of adapters, every kind (stores, coders …) is a layer of its own.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "domain": {"errors"},
    "config": DOMAIN,
    "files": set(),
    "ports": DOMAIN,
    "records": DOMAIN | {"ports", "work"},
    "work": RECORDS | {"engine"},  # the registry; of the engine it names types
    "shim": PORTS,
    "adapters": (PORTS - {"config"}) | {"shim"},
    "services": RECORDS | {"work"},
    "engine": RECORDS | {"shim", "work"},
    "operations": RECORDS | {"services", "work"},
    "plugins": RECORDS | {"adapters"},
    "bootstrap": RECORDS | {"adapters", "services", "engine", "shim", "plugins"},
    "testing": RECORDS | {"services", "engine", "shim", "bootstrap"},
    "interfaces": RECORDS
    | {"work", "operations", "services", "engine", "shim", "plugins", "bootstrap", "compat"},
    # Names and shapes of other systems.
    "compat": RECORDS | {"operations", "services", "plugins", "bootstrap", "interfaces"},
    "": RECORDS
    | {"services", "engine", "plugins", "bootstrap", "interfaces"},  # fleet itself, and fleet.__main__
}
# The layer of a module in `work/<kind>/`, by its name; all others are model and decisions.
LAYER_OF_PART = {
    "kind": "kind",
    "records": "records",
    "reconciler": "engine",
    "stage_runners": "engine",
    "service": "services",
    "stage_logs": "services",
    "operations": "operations",
    "cli": "interfaces",
    "graph": "interfaces",
}
MAY_IMPORT["kind"] = RECORDS | {"work", "engine"}
# A kind whose work is made of another's, too.
BUILT_ON = {"workflow": {"pair", "race"}, "sprint": {"pair"}}
# Layers that may import a kind: they wire its services, and render its operations.
USES_KINDS = {"bootstrap", "compat", "interfaces", "operations"}
STANDARD_LIBRARY_ONLY = {"errors", "domain", "ports", "records", "files", "config"}


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def layer(module: str) -> str:
    """Return the layer of a module of ours; `adapters.stores` for those, so that kinds stay apart."""
    parts = module.split(".")
    if len(parts) < 2 or parts[1] == "__main__":
        return ""
    if kind_of_work(module):
        return LAYER_OF_PART.get(parts[-1], "domain")
    return ".".join(parts[1:3]) if parts[1] == "adapters" else parts[1]


def kind_of_work(module: str) -> str:
    """Return the kind of work whose folder a module is in, if any."""
    parts = module.split(".")
    is_folder = parts[1:2] == ["work"] and len(parts) > 2 and f"fleet.work.{parts[2]}.kind" in MODULES
    return parts[2] if is_folder else ""


@cache
def imports(module: str) -> frozenset[tuple[str, bool]]:
    """Return what a module imports anywhere in it, and whether that happens when it is loaded itself."""
    tree = ast.parse(MODULES[module].read_bytes())
    at_once = {id(node) for node in _nodes_at_once(tree)}
    return frozenset((name, id(node) in at_once) for node in ast.walk(tree) for name in _imported(node))


def _nodes_at_once(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not lazy and not _is_for_type_checkers(node):
            yield node
            yield from _nodes_at_once(node)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written out in full"
        assert node.module
        for alias in node.names:  # `from package import module` imports the module
            full = f"{node.module}.{alias.name}"
            if (
                node.module != "fleet.version" and full != "fleet.__version__"
            ):  # a fact that everybody may know
                yield full if full in MODULES else node.module


def test_the_source_is_found() -> None:
    assert {"fleet.errors", "fleet.domain.run", "fleet.config", "fleet.adapters.stores.sqlite"} <= set(
        MODULES
    )


@for_each("module", MODULES)
def test_a_module_imports_only_from_layers_below_it(module: str) -> None:
    own = layer(module)
    allowed = MAY_IMPORT[own.partition(".")[0]]
    for name, _ in imports(module):
        if name.partition(".")[0] == "fleet":
            there = layer(name)
            below = there.partition(".")[0] in allowed
            assert there == own or below, f"{module} must not import {name}"


def test_only_the_registry_and_front_ends_know_a_kind_of_work() -> None:
    found = {
        (module, name)
        for module in MODULES
        for name, _ in imports(module)
        if (kind := kind_of_work(name)) not in ("", kind_of_work(module))
        and kind not in BUILT_ON.get(kind_of_work(module), ())
        and layer(module) not in USES_KINDS
    }
    assert not found, sorted(found)


@for_each("module", [name for name in MODULES if layer(name) in STANDARD_LIBRARY_ONLY])
def test_the_inner_layers_use_the_standard_library_alone(module: str) -> None:
    for name, _ in imports(module):
        top = name.partition(".")[0]
        assert top == "fleet" or top in sys.stdlib_module_names, f"{module} must not import {name}"


def test_no_two_modules_import_each_other() -> None:
    graph = {
        module: {name for name, at_once in imports(module) if at_once and name in MODULES and name != module}
        for module in MODULES
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)
