"""Writes config/schema.json, the table of all settings: `python -m entente.commands.schema`. A test compares the two."""

from collections.abc import Callable
from typing import Any

from entente.ablation.comparison import Compare
from entente.ablation.suite import SuiteSettings
from entente.checkpoint import RUNTIME
from entente.commands.evaluate import Evaluate
from entente.commands.sentence import Attention, Trace
from entente.commands.translate import Translate
from entente.config.defaults import FILE, Table, table, written
from entente.data.corpora import CORPORA
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.files.writing import write_text
from entente.models import MODELS
from entente.training.settings import BATCH_GIVEN, TOKENIZER_GIVEN, RunSettings
from entente_grammar.show import Show

VERBS: dict[str, Callable[..., Any]] = {
    "evaluate": Evaluate,
    "translate": Translate,
    "attention": Attention,
    "trace": Trace,
    "ablate": SuiteSettings,
    "compare": Compare,
    "corpus": Show,
}


def schema() -> str:
    """The content of schema.json, from the signatures."""
    tables = {"train": table(RunSettings, ("model", "data"))}
    for verb, kind in VERBS.items():
        tables[verb] = table(kind, ("search", "suites"))
    for name, model in MODELS.items():
        tables[f"model/{name}"] = _name(name) | table(model, RUNTIME)
    for name, reader in CORPORA.items():
        cut = table(Vocabulary.train, TOKENIZER_GIVEN, "tokenizer.") | table(TranslationData, BATCH_GIVEN, "batch.")
        tables[f"data/{name}"] = _name(name) | table(reader) | cut
    return written(tables)


def _name(name: str) -> Table:
    return {"name": {"default": name, "allowed": "", "comment": ""}}


if __name__ == "__main__":
    write_text(FILE, schema())
