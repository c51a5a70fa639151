"""Writes src/entente/config/schema.json, a description of all settings, from the signatures of the classes and functions that
define them. A test fails if the file is out of date."""

import json
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from inspect import Parameter, signature
from typing import Any, get_args

from annotated_types import DocInfo
from typing_extensions import is_typeddict

from entente.ablation.comparison import Compare
from entente.ablation.suite import SuiteSettings
from entente.checkpoint import RUNTIME
from entente.commands.attention import Attention, Trace
from entente.commands.data import InspectData
from entente.commands.evaluate import Evaluate
from entente.commands.translate import Translate
from entente.config.schema import MISSING, REQUIRED, allowed, json_schema, part_of, settings_of
from entente.config.tables import FILE, Table
from entente.data.corpora import CORPORA
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.files import write_text
from entente.models import MODELS
from entente.training.settings import BATCH_GIVEN, TOKENIZER_GIVEN, RunSettings
from entente_grammar.show import Show

ON_THIS_MACHINE = ("output_dir", "trainer.accelerator", "trainer.precision")  # their allowed values depend on the machine
VERBS: dict[str, Callable[..., Any]] = {
    "evaluate": Evaluate,
    "translate": Translate,
    "attention": Attention,
    "trace": Trace,
    "ablate": SuiteSettings,
    "compare": Compare,
    "data": InspectData,
    "corpus": Show,
}


def schema() -> str:
    """Returns the content of schema.json, with one line per setting."""
    tables = {"train": _table(RunSettings, ("model", "data"))}
    tables |= {verb: _table(kind, ("search", "suites", "data")) for verb, kind in VERBS.items()}
    tables |= {f"model/{name}": {"name": {"default": name}} | _table(model, RUNTIME) for name, model in MODELS.items()}
    cut = _table(Vocabulary.train, TOKENIZER_GIVEN, "tokenizer.") | _table(TranslationData, BATCH_GIVEN, "batch.")
    tables |= {f"data/{name}": {"name": {"default": name}} | _table(reader) | cut for name, reader in CORPORA.items()}
    blocks = []
    for name, settings in tables.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(setting, ensure_ascii=False)}" for key, setting in settings.items()]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _table(target: Callable[..., Any], given: Collection[str] = (), prefix: str = "") -> Table:
    """Describes the settings in the signature of `target`, by dotted key. `given` names its arguments that are not settings."""
    found: Table = {}
    related = {name for relation in getattr(target, "relations", ()) for name in signature(relation).parameters}
    for name, setting in settings_of(target).items():
        key, part = f"{prefix}{name}", part_of(setting.annotation)
        if name in given:
            continue
        if is_dataclass(part):
            found |= _table(part, prefix=f"{key}.")  # type: ignore[arg-type]
            continue
        found[key] = {"default": MISSING if setting.default is REQUIRED else setting.default, **_words(setting)}
        if name not in related and key not in ON_THIS_MACHINE and not part:
            found[key]["values"] = json_schema(setting.annotation)
        if is_typeddict(part):
            found |= {f"{key}.{inner}": _words(one) for inner, one in settings_of(part).items()}
    return found


def _words(setting: Parameter) -> dict[str, str]:
    comment = next((entry.documentation for entry in get_args(setting.annotation) if isinstance(entry, DocInfo)), "")
    return {"allowed": allowed(setting.annotation), "comment": comment}


if __name__ == "__main__":
    write_text(FILE, schema())
