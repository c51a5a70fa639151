"""Tests that each part of the package (a module or a subpackage) imports only the parts and packages that it is allowed to.

The file also tests the lengths and names of the modules.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "entente"

# The layers, from the lowest to the highest. A part may import itself and the parts of lower layers, but no others.
LAYERS = """errors entente_grammar, escape files, console settings, commands.settings process recipe distributed,
    validation, help, cli, models, fast, data, checkpoint, decoding, attention evaluation export, trained page, training,
    ablation, commands, __main__, scripts"""
LAYER = {part: height for height, parts in enumerate(LAYERS.split(",")) for part in parts.split()}
# These parts may import little. Each is mapped to the parts of this package and the other packages that it may import.
FEW_DEPENDENCIES = {
    "errors": (set(), set()),
    "settings": ({"errors", "files"}, {"pydantic"}),
    "commands.settings": ({"settings"}, {"pydantic"}),
    "models": ({"settings"}, {"torch"}),
    "fast": ({"models", "settings"}, {"torch"}),
    "entente_grammar": (set(), {"entente_grammar", "rich", "sacrebleu"}),
}
MAX_LINES = 350  # in a module
PAGE_LINES = {"": 2800, "forward.js": 600}  # in all of page/, and in the file that reads like models/
LIGHTNING = {"lightning", "pytorch_lightning", "lightning_fabric"}
LIGHTNING_USERS = {"training", "scripts", "data.module"}
HYDRA_USERS = {"cli", "scripts"}
GRAMMAR_USERS = {"entente_grammar", "data", "commands", "scripts"}


# A variable is a noun that says what it holds, and none of these words.
NO_NOUNS = """one found given own how chosen known wrong there said both most least others before after here whole sound alike
    odd near seen shown drawn kept wanted meant again further more""".split()


def modules() -> list[tuple[str, Path]]:
    """Returns the name and file of each module. Names omit the prefix `entente.`, as in models.attention or scripts.publish."""
    roots = ((PACKAGE, PACKAGE), (PACKAGE.parent / "entente_grammar", PACKAGE.parent), (ROOT / "scripts", ROOT))
    paths = [(path.relative_to(base), path) for folder, base in roots for path in folder.rglob("*.py")]
    return sorted((".".join(relative.with_suffix("").parts), path) for relative, path in paths)


def part_of(module: str) -> str:
    return module if module in LAYER else module.partition(".")[0]


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
    part = part_of(module)
    if part == "__init__":
        lazy = {"importlib", "typing", "entente.errors"}
        lazy |= {"entente.trained", "entente.commands.train"}  # imported when they are first used
        return [f"{module} imports {name}, which slows `import entente`" for name in sorted(imports(module, source) - lazy)]
    if part not in LAYER:
        return [f"{module} is in no layer"]
    ours, packages = FEW_DEPENDENCIES.get(part, (set(LAYER), None))
    lines = []
    for name in sorted(imports(module, source)):
        top, _, rest = name.partition(".")
        target = part_of(rest)
        if top == "entente":
            if target not in LAYER:
                lines.append(f"{module} imports {name}, which is in no layer")
            elif target != part and (LAYER[target] >= LAYER[part] or target not in ours):
                lines.append(f"{module} imports {name}, which is in no lower layer or is not an allowed dependency")
        elif packages is not None and top not in packages | sys.stdlib_module_names:
            lines.append(f"{module} imports {name}; apart from the standard library, it may import only {sorted(packages)}")
        for names, users in ((LIGHTNING, LIGHTNING_USERS), ({"entente_grammar"}, GRAMMAR_USERS), ({"hydra"}, HYDRA_USERS)):
            if packages is None and top in names and not {part, module} & users:
                lines.append(f"{module} imports {name}: only {sorted(users)} may import it")
    return lines


def test_each_module_imports_only_what_it_may() -> None:
    assert [line for module, path in modules() for line in violations(module, path.read_text(encoding="utf-8"))] == []


def test_a_forbidden_import_is_found() -> None:
    for module, source in (
        ("errors", "import torch"),
        ("models.attention", "def f():\n    from ..decoding import search"),
        ("no_layer", "import math"),
    ):
        assert len(violations(module, source)) == 1


def test_no_module_is_too_long() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in modules()}
    assert {module: n for module, n in lengths.items() if n > MAX_LINES} == {}
    for ending, limit in PAGE_LINES.items():
        files = [path for path in (PACKAGE / "page").iterdir() if path.name.endswith(ending) and path.is_file()]
        assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= limit


def test_variables_are_nouns() -> None:
    names = [
        f"{module}: {name}"
        for module, path in modules()
        if path.is_relative_to(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (name := node.arg if isinstance(node, ast.arg) else getattr(node, "id", "")) in NO_NOUNS
        and (isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store))  # type: ignore[attr-defined]
    ]
    assert len(names) <= 23, names


def test_no_module_has_a_name_that_fits_anything() -> None:
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert [module for module, _ in modules() if module.rpartition(".")[2] in vague] == []
