"""Write a page on which a trained model is taken apart: one HTML file to open in a browser, without a server or a network. Two
models are shown next to each other.

entente page outputs/RUN
entente page outputs/RUN outputs/OTHER output=both.html
entente page model.ckpt input=pairs.tsv output=page.html
"""

from itertools import islice
from pathlib import Path
from typing import Any

from entente import checkpoint
from entente.attention.numbers import measure, pairs_of
from entente.attention.record import has_attention
from entente.commands.settings import PageSettings
from entente.commands.stored import stored_corpus
from entente.console import Task, log
from entente.data.files import read_lines
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.files import read_file, write_text
from entente.page import Sentence, Shown, alignment_errors, html
from entente.process import prepare_process

SENTENCES = 20
FIRST_LENGTHS = range(5, 11)  # words of the sentence that is shown first


def main(settings: PageSettings) -> None:
    folders = [Path(path) for path in settings.runs]
    if not settings.output and not folders[0].is_dir():
        raise InputError(f"{folders[0]}: not a run's directory; give output=FILE for the page")
    output = Path(settings.output) if settings.output else folders[0] / "page.html"
    prepare_process(settings.threads)
    runs = [checkpoint.load(path) for path in settings.runs]
    for run, path in zip(runs, settings.runs, strict=True):
        if run.settings.model.softmax != "keys":
            axis = run.settings.model.softmax
            raise InputError(f"{path}: its softmax is over the {axis}, and a page computes one sentence step by step")
        if run.languages != runs[0].languages:
            (src, tgt), others = run.languages, " to ".join(runs[0].languages)
            raise InputError(f"{path}: translates {src} to {tgt}; give a model that translates {others}, like the first")
    grammar = runs[0].settings.data.name == "grammar" and not settings.input
    data = [_test_data(run, path) if grammar else None for run, path in zip(runs, settings.runs, strict=True)]
    sentences = _of_corpus(data[0]) if data[0] else _of_file(settings, folders[0])
    models = []
    for run, folder, split in zip(runs, folders, data, strict=True):
        with Task(f"measuring how well the heads of {folder.name} align words"):
            errors = _errors(run, split) if split else []
        models.append(Shown(folder.resolve().name, str(folder), run, _importance(folder), errors))
    with Task("writing the page"):
        write_text(output, html(models, sentences))
    log.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def _importance(folder: Path) -> dict[str, Any]:
    path = folder / "importance.json"
    if path.is_file():
        return dict(read_file(path))
    log.info("%s: missing; `entente importance checkpoint=%s` measures what each part is worth, for the page", path, folder)
    return {}


def _test_data(run: checkpoint.TrainedRun, path: str) -> TranslationData:
    return TranslationData(stored_corpus(run, path, trusted=False), run.vocabulary, run.settings.data.batch)


def _errors(run: checkpoint.TrainedRun, data: TranslationData) -> list[list[float]]:
    if not has_attention(run.model):
        return []
    return alignment_errors(measure(run.model, run.vocabulary, pairs_of(data, "test"))[1])


def _of_corpus(data: TranslationData) -> list[Sentence]:
    rows, gold = data.pairs("test").select(range(SENTENCES)), data.corpus.gold["test"]
    return _short_first([Sentence(row["src"], row["tgt"], links) for row, links in zip(rows, gold, strict=False)])


def _of_file(settings: PageSettings, folder: Path) -> list[Sentence]:
    """Returns the first sentences of `input`, or those of the run's translations of its test split."""
    files = [*sorted((folder / "translations").glob("test*.tsv")), folder / "translations" / "valid.tsv"]
    path = Path(settings.input) if settings.input else next((file for file in files if file.is_file()), None)
    if not path:
        raise InputError(f"{folder}: no translations/*.tsv with sentences to show; give input=FILE, a sentence per line")
    lines = islice(read_lines(path), 0 if settings.input else 1, None)  # the run's own files have a heading
    rows = [line.split("\t") for line in islice(filter(None, lines), SENTENCES)]
    if not rows:
        raise InputError(f"{path}: has no sentence to show")
    return _short_first([Sentence(row[0], row[1] if len(row) > 1 else "") for row in rows])


def _short_first(sentences: list[Sentence]) -> list[Sentence]:
    return sorted(sentences, key=lambda sentence: len(sentence.source.split()) not in FIRST_LENGTHS)
