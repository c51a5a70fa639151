"""Tests that each part of the package (a module or a subpackage) imports only the parts and packages that it is allowed to.

The file also tests the lengths and names of the modules.
"""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "entente"

# The layers, from the lowest to the highest. A part may import itself and the parts of lower layers, but no others.
LAYERS = """errors entente_grammar, console, files process distributed, config, models, fast, data, checkpoint, decoding,
    attention evaluation, trained, training, ablation, commands, __main__, scripts"""
LAYER = {part: height for height, parts in enumerate(LAYERS.split(",")) for part in parts.split()}
# These parts may import little. Each is mapped to the parts of this package and the other packages that it may import.
FEW_DEPENDENCIES = {
    "errors": (set(), set()),
    "models": (set(), {"torch", "annotated_types"}),
    "fast": ({"models"}, {"torch"}),
    "entente_grammar": (set(), {"entente_grammar", "annotated_types", "rich", "sacrebleu"}),
}
MAX_LINES = 400  # in a module
LIGHTNING = {"lightning", "pytorch_lightning", "lightning_fabric"}
LIGHTNING_USERS = {"training", "commands", "ablation", "scripts", "data.module"}
HYDRA_USERS = {"ablation", "commands", "config", "scripts"}
GRAMMAR_USERS = {"entente_grammar", "data", "commands", "scripts"}


def modules() -> list[tuple[str, Path]]:
    """Returns the name and file of each module. Names omit the prefix `entente.`, as in models.attention or scripts.schema."""
    found = [(path.relative_to(PACKAGE), path) for path in PACKAGE.rglob("*.py")]
    found += [(path.relative_to(ROOT / "src"), path) for path in (ROOT / "src" / "entente_grammar").rglob("*.py")]
    found += [(path.relative_to(ROOT), path) for path in (ROOT / "scripts").rglob("*.py")]
    return sorted((".".join(relative.with_suffix("").parts), path) for relative, path in found)


def imports(module: str, source: str) -> set[str]:
    """Returns the absolute names of all imports in the source, including those inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = ["entente", *module.split(".")][: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names} if base == "entente" else {base}
    return names


def violations(module: str, source: str) -> list[str]:
    """Returns one line for each forbidden import of the module."""
    part = module.partition(".")[0]
    if part == "__init__":
        known = {"os", "typing", "entente.trained"}  # entente.trained is imported lazily
        return [f"{module} imports {name}, which slows `import entente`" for name in sorted(imports(module, source) - known)]
    if part not in LAYER:
        return [f"{module} is in no layer"]
    ours, others = FEW_DEPENDENCIES.get(part, (set(LAYER), None))
    found = []
    for name in sorted(imports(module, source)):
        top, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if top == "entente":
            if other not in LAYER:
                found.append(f"{module} imports {name}, which is in no layer")
            elif other != part and (LAYER[other] >= LAYER[part] or other not in ours):
                found.append(f"{module} imports {name}, which is in no lower layer or is not an allowed dependency")
        elif others is not None and top not in others | sys.stdlib_module_names:
            found.append(f"{module} imports {name}; apart from the standard library, it may import only {sorted(others)}")
        elif top in LIGHTNING and not {part, module} & LIGHTNING_USERS:
            found.append(f"{module} imports {name}: only {sorted(LIGHTNING_USERS)} may import Lightning")
        elif top == "entente_grammar" and part not in GRAMMAR_USERS:
            found.append(f"{module} imports {name}: only {sorted(GRAMMAR_USERS)} may import it")
        elif top == "hydra" and part not in HYDRA_USERS:
            found.append(f"{module} imports {name}: only {sorted(HYDRA_USERS)} may import Hydra")
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=[module for module, _ in modules()])
def test_each_module_imports_only_what_it_may(module: str, path: Path) -> None:
    assert violations(module, path.read_text(encoding="utf-8")) == []


def test_modules_of_every_kind_are_found() -> None:
    names = {"checkpoint", "models.attention", "models.__init__", "data.module", "entente_grammar.clause", "scripts.schema"}
    assert names <= dict(modules()).keys()


def test_no_module_is_too_long() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in modules()}
    assert {module: n for module, n in lengths.items() if n > MAX_LINES} == {}


def test_no_module_has_a_name_that_fits_anything() -> None:
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert [module for module, _ in modules() if module.rpartition(".")[2] in vague] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "import torch"),
        ("config.schema", "from entente.models import MODELS"),
        ("models.attention", "from entente.config import schema"),
        ("models.attention", "from ..decoding.search import Search"),
        ("models.attention", "def f():\n    from entente.decoding import search"),
        ("models.birnn", "from entente.fast.attach import attach"),
        ("fast.loss", "from entente.errors import InputError"),
        ("decoding.search", "import lightning"),
        ("data.batches", "import lightning as L"),
        ("training.translator", "import entente.commands.evaluate"),
        ("training.train", "import hydra"),
        ("config.command_line", "import scripts.schema\nfrom entente import scripts"),
        ("no_layer", "import math"),
        ("entente_grammar.corpus", "from entente.errors import InputError"),
        ("entente_grammar.clause", "import torch"),
        ("training.train", "from entente_grammar import splits"),
        ("decoding.search", "import entente.no_layer"),
        ("__init__", "from entente.models import MODELS"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1
