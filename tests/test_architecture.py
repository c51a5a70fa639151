"""The arrows between the rooms of the package, read from its imports: who may know whom."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "entente"

# A package may import those of lower floors, never one beside it or above.
FLOORS = [
    {"errors", "entente_grammar"},
    {"console"},
    {"files", "process"},
    {"config"},
    {"models"},
    {"fast"},
    {"data"},
    {"checkpoint"},
    {"decoding"},
    {"attention", "evaluation"},
    {"trained"},
    {"training"},
    {"ablation"},
    {"commands"},
    {"__main__"},
    {"scripts"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
# These know only what is named: of our packages, and of other packages.
NARROW = {
    "errors": (set(), set()),
    "models": (set(), {"torch", "annotated_types"}),
    "fast": ({"models"}, {"torch"}),
    "entente_grammar": (set(), {"entente_grammar", "annotated_types", "rich", "sacrebleu"}),
}
LONGEST = 400  # lines of a module
LIGHTNING = {"lightning", "pytorch_lightning", "lightning_fabric"}
WITH_LIGHTNING = {"training", "commands", "ablation", "scripts", "data.module"}
WITH_HYDRA = {"ablation", "commands", "config", "scripts"}
WITH_GRAMMAR = {"entente_grammar", "data", "commands", "scripts"}


def files() -> list[tuple[str, Path]]:
    """Every source file by dotted name without `entente`: `models.attention`, `entente_grammar.clause`, `scripts.train`."""
    found = [(path.relative_to(PACKAGE), path) for path in PACKAGE.rglob("*.py")]
    found += [(path.relative_to(ROOT / "src"), path) for path in (ROOT / "src" / "entente_grammar").rglob("*.py")]
    found += [(path.relative_to(ROOT), path) for path in (ROOT / "scripts").rglob("*.py")]
    return sorted((".".join(relative.with_suffix("").parts), path) for relative, path in found)


def imports(module: str, source: str) -> set[str]:
    """Dotted names imported anywhere in the source, in functions too; relative ones made absolute."""
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
    """What the module imports and may not, in words."""
    room = module.partition(".")[0]
    if room == "__init__":
        known = {"os", "typing", "entente.trained"}  # the last only when something is loaded
        return [f"{module} imports {name}: the package itself stays light" for name in sorted(imports(module, source) - known)]
    if room not in FLOOR:
        return [f"{module} is in no room that has a floor"]
    ours, others = NARROW.get(room, (set(FLOOR), None))
    wrong = []
    for name in sorted(imports(module, source)):
        top, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if top == "entente":
            if other not in FLOOR:
                wrong.append(f"{module} imports {name}, which is in no room that has a floor")
            elif other != room and (FLOOR[other] >= FLOOR[room] or other not in ours):
                wrong.append(f"{module} imports {name}, which is not below it")
        elif others is not None and top not in others | sys.stdlib_module_names:
            wrong.append(f"{module} imports {name} and may know only {', '.join(sorted(others)) or 'what Python brings'}")
        elif top in LIGHTNING and not {room, module} & WITH_LIGHTNING:
            wrong.append(f"{module} imports {name}: Lightning begins at training")
        elif top == "entente_grammar" and room not in WITH_GRAMMAR:
            wrong.append(f"{module} imports {name}: the embedded corpus is read by data")
        elif top == "hydra" and room not in WITH_HYDRA:
            wrong.append(f"{module} imports {name}: Hydra is for the commands")
    return wrong


@pytest.mark.parametrize(("module", "path"), files(), ids=[module for module, _ in files()])
def test_each_file_imports_only_what_it_may_know(module: str, path: Path) -> None:
    assert violations(module, path.read_text(encoding="utf-8")) == []


def test_the_files_read_are_those_of_the_package() -> None:
    assert {"checkpoint", "models.attention", "models.__init__", "data.module", "entente_grammar.clause"} <= {
        module for module, _ in files()
    }


def test_no_file_is_longer_than_one_reads_at_a_time() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in files()}
    assert {module: n for module, n in lengths.items() if n > LONGEST} == {}


def test_no_file_is_a_drawer_for_everything() -> None:
    assert [
        module for module, _ in files() if module.rpartition(".")[2] in {"utils", "util", "helpers", "common", "misc"}
    ] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "import torch"),
        ("config.schema", "from entente.models import MODELS"),
        ("models.attention", "import numpy as np"),
        ("models.attention", "from entente.config import schema"),
        ("models.attention", "from pydantic import Field"),
        ("models.attention", "from entente.errors import InputError"),
        ("models.attention", "from entente.data.tokenizer import PAD"),
        ("models.attention", "from ..decoding.search import Search"),
        ("models.attention", "def f():\n    from entente.decoding import search"),
        ("models.birnn", "from entente.fast.attach import attach"),
        ("fast.loss", "from entente.errors import InputError"),
        ("decoding.search", "import lightning"),
        ("data.corpora", "from entente.checkpoint import build"),
        ("data.batches", "import lightning as L"),
        ("data.module", "import hydra"),
        ("attention.record", "from entente.training.train import train"),
        ("evaluation.scores", "from entente.training import translator"),
        ("attention.draw", "from lightning.pytorch import Callback"),
        ("checkpoint", "from hydra.utils import instantiate"),
        ("training.translator", "import entente.commands.evaluate"),
        ("training.train", "import hydra"),
        ("config.command_line", "import scripts.train\nfrom entente import scripts"),
        ("drawer", "import math"),
        ("entente_grammar.corpus", "from entente.errors import InputError"),
        ("entente_grammar.clause", "import torch"),
        ("training.train", "from entente_grammar import splits"),
        ("decoding.search", "import entente.drawer"),
        ("__init__", "from entente.models import MODELS"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "models.transformer",
            "import math\nimport torch.nn\nfrom entente.models.attention import KV\nfrom .seq2seq import State",
        ),
        ("config.schema", "from pydantic import TypeAdapter\nfrom entente.errors import InputError"),
        ("models.seq2seq", "from annotated_types import Interval"),
        ("data.module", "import lightning as L\nfrom entente.config.schema import fill\nfrom entente import errors"),
        ("decoding.search", "from entente.data import batches\nfrom entente.models.seq2seq import Seq2Seq"),
        ("evaluation.scores", "import sacrebleu\nfrom entente import data, models, decoding"),
        ("training.translator", "import lightning as L\nfrom entente.evaluation import scores"),
        ("entente_grammar.corpus", "import random\nfrom entente_grammar.draft import Draft\nfrom sacrebleu import corpus_bleu"),
        ("data.corpora", "from entente_grammar import splits"),
        ("scripts.train", "import hydra\nfrom entente.config.command_line import run"),
    ],
)
def test_an_allowed_import_is_let_pass(module: str, source: str) -> None:
    assert violations(module, source) == []
