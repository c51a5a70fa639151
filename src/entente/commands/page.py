"""Write a page on which a trained model is taken apart. It is one HTML file to open in a browser, without a server or a
network. Two models are shown next to each other.

entente page outputs/RUN
entente page outputs/RUN outputs/OTHER output=both.html
entente page model.ckpt input=pairs.tsv output=page.html
"""

from itertools import islice
from pathlib import Path

from entente import checkpoint
from entente.attention.alignment import STEPS
from entente.attention.numbers import measure, pairs_of
from entente.attention.record import has_attention
from entente.commands.settings import PageSettings
from entente.console import Task, log
from entente.data.corpora import read_corpus
from entente.data.files import raw_lines
from entente.data.module import TranslationData
from entente.data.text import clean
from entente.errors import InputError
from entente.files import read_file, write_text
from entente.page import LIMIT, Sentence, Shown, html

SENTENCES = 20
FIRST_LENGTHS = range(5, 11)  # words of the sentences that come first


def main(settings: PageSettings) -> None:
    paths = [Path(path) for path in ([settings.runs] if isinstance(settings.runs, str) else settings.runs)]
    if not settings.output and not paths[0].is_dir():
        raise InputError(f"{paths[0]}: not a run's directory; give output=FILE for the page")
    output = Path(settings.output) if settings.output else paths[0] / "page.html"
    runs = [checkpoint.load(str(path)) for path in paths]
    for run, path in zip(runs, paths, strict=True):
        if run.settings.model.softmax != "keys":
            axis = run.settings.model.softmax
            raise InputError(f"{path}: its softmax is over the {axis}, and a page computes one sentence step by step")
        if run.languages != runs[0].languages:
            (src, tgt), others = run.languages, " to ".join(runs[0].languages)
            raise InputError(f"{path}: translates {src} to {tgt}; give a model that translates {others}, like the first")
    folders = [path if path.is_dir() else path.parent for path in paths]
    names = [path.resolve().name if path.is_dir() else "/".join(path.resolve().parts[-2:]) for path in paths]
    # Gold links are known for the embedded corpus only.
    data = [_test_data(run) if run.settings.data.name == "grammar" else None for run in runs]
    texts = _of_corpus(data[0]) if data[0] and not settings.input else _of_file(settings, folders[0])
    short = (text for text in texts if all(len(run.vocabulary.encode_src([text.source])[0]) <= LIMIT for run in runs))
    sentences = sorted(islice(short, SENTENCES), key=lambda sentence: len(sentence.source.split()) not in FIRST_LENGTHS)
    if not sentences:
        raise InputError(f"{settings.input or paths[0]}: has no sentence of at most {LIMIT} pieces to show; give input=FILE")
    models = []
    for run, path, folder, name, of_run in zip(runs, paths, folders, names, data, strict=True):
        with Task(f"measuring how well the heads of {name} align words"):
            errors = _errors(run, of_run) if of_run else []
        files = folder / "metrics.json", folder / "importance.json"
        metrics, importance = (read_file(file) if file.is_file() else {} for file in files)
        if not importance:
            log.info("`entente importance checkpoint=%s` measures what each part is worth, for the page", path)
        models.append(Shown(name, str(path), run, metrics, importance, errors))
    with Task("writing the page"):
        write_text(output, html(models, sentences))
    log.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def _test_data(run: checkpoint.TrainedRun) -> TranslationData:
    return TranslationData(read_corpus(run.settings.data, Path("outputs/cache")), run.vocabulary, run.settings.data.batch)


def _errors(run: checkpoint.TrainedRun, data: TranslationData) -> list[list[float]]:
    if not has_attention(run.model):
        return []
    alignments = measure(run.model, run.vocabulary, pairs_of(data, "test"))[1]
    return alignments.error_rates(STEPS).tolist() if alignments.gold else []


def _of_corpus(data: TranslationData) -> list[Sentence]:
    rows = data.pairs("test")[:SENTENCES]
    return [*map(Sentence, rows["src"], rows["tgt"], data.corpus.gold["test"])]


def _of_file(settings: PageSettings, folder: Path) -> list[Sentence]:
    """Returns the sentences of `input`, or those of the run's translations of its test split."""
    stored = (folder / "translations").glob("*.tsv")
    files = sorted(stored, key=lambda file: (file.stem == "valid", not file.name.startswith("test"), file.name))
    path = Path(settings.input) if settings.input else next(iter(files), None)
    if not path:
        raise InputError(f"{folder}: no translations/*.tsv with sentences to show; give input=FILE, a sentence per line")
    lines = [*raw_lines(path)][0 if settings.input else 1 :]  # the run's own files have a heading
    rows = [[*map(clean, line.split("\t")), ""] for line in lines]
    return [Sentence(source, reference) for source, reference, *_ in rows if source]
