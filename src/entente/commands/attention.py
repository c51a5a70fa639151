"""Draw the attention of models. Each layer and head becomes a panel; several checkpoints are drawn side by side.

entente attention checkpoint=outputs/RUN sentence="Il dort."
entente attention checkpoint=outputs/RUN pair=test/1 words=true
entente attention "checkpoint=[outputs/RUN,outputs/OTHER]" output=both.png
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from entente import checkpoint, escape
from entente.attention import draw, numbers, record
from entente.attention.alignment import Pair, Words, merge_pieces, with_mean
from entente.commands.scoring import stored_corpus
from entente.commands.settings import AttentionSettings
from entente.console import Task, log
from entente.data.alignments import Gold
from entente.data.batches import split_of
from entente.data.text import clean
from entente.errors import InputError
from entente.files import open_atomic
from entente.models.seq2seq import Seq2Seq
from entente.settings import AttentionKind

FORMATS = (".png", ".svg", ".pdf", ".jpg", ".jpeg")  # any other output is a folder
FOLDER_FORMATS = (".png", ".svg")  # if `output` is a folder, each picture is written in both formats
NamedMap = tuple[str, record.AttentionMap]  # the name of a model, and one of its maps


def main(settings: AttentionSettings) -> None:
    """Draws each kind of attention: all layers and heads, or those that are chosen. Draws only one kind if there are several
    checkpoints, if `kind` or `occlusion` is set, or if `output` names a picture."""
    paths = [settings.checkpoint] if isinstance(settings.checkpoint, str) else settings.checkpoint
    output = Path(settings.output)
    is_picture = output.suffix.lower() in FORMATS
    source, target, gold = _sentence(settings, paths[0])
    side_by_side = settings.occlusion or len(paths) > 1
    maps: list[NamedMap] = []
    sentences = [source, f"given, not translated: {target}"] if target else [source]
    for number, path in enumerate(paths, start=1):
        run = checkpoint.load(path)
        model, vocabulary = run.model, run.vocabulary
        name = f"{number}. {run.settings.model.name}" if len(paths) > 1 else str(run.settings.model.name)
        src, tgt = record.read_sentence(run, source, target)
        if not target:
            sentences.append(f"{name}: {vocabulary.text(tgt)}")
        if not record.has_attention(model):
            raise InputError(f"checkpoint={path}: this model has no attention; give another checkpoint")
        of_model = record.record(model, vocabulary, src, tgt)
        placed = gold and gold._replace(src=vocabulary.src.place(source, gold.src))
        words = Pair(src, tgt, placed).words(vocabulary)
        if settings.words or settings.occlusion or gold:  # gold links connect words, not pieces
            of_model = [merge_pieces(map, *words) for map in of_model]
        if settings.kind or is_picture or side_by_side:
            of_model = [_of_kind(settings.kind, of_model)]
        if settings.occlusion:
            maps += _with_occlusion(name, model, src, tgt, of_model[0], *words)
        else:
            maps += [(name, map) for map in of_model]
    for sentence in sentences:
        log.info("%s", escape.line(sentence))
    title = "\n".join(sentences)
    links = {(row, column): (column, row) in gold.sure for column, row in gold.possible} if gold else {}
    letters = re.sub(r"\W+", "-", source.casefold())[:40].strip("-")
    folder = f"{letters}-{hashlib.sha256(title.encode()).hexdigest()[:6]}"
    choice = settings.layer, settings.head
    if side_by_side:
        figures = {"occlusion" if settings.occlusion else "side-by-side": draw.draw_pair(dict(maps), title, *choice, links)}
    else:
        chosen = "".join(f"-{name}{number}" for name, number in zip(("layer", "head"), choice, strict=True) if number)
        figures = {record.NAME_OF_KIND[map.kind] + chosen: draw.draw(map, title, *choice, links) for _, map in maps}
    for picture, figure in figures.items():
        for file in [output] if is_picture else [output / folder / f"{picture}{suffix}" for suffix in FOLDER_FORMATS]:
            with Task(f"drawing {file}"), open_atomic(file) as opened:
                figure.savefig(opened, format=file.suffix[1:].lower())
            log.info("%s", file)


def _with_occlusion(
    name: str, model: Seq2Seq, src: list[int], tgt: list[int], map: record.AttentionMap, source: Words, target: Words
) -> list[NamedMap]:
    """Returns a map of words, and of the effect of leaving out each of them, without end symbols. Prints how they correlate."""
    if not target.labels:
        raise InputError("occlusion=true: the translation is empty; give target=SENTENCE")
    map = map._replace(weights=map.weights[..., :-1, :-1], rows=map.rows[:-1], columns=map.columns[:-1])
    with Task("leaving out each source word"):
        change = numbers.occlusion(model, src, tgt, source, target)
    if len(source.labels) > 1:  # a single word has all the attention
        numbers.show({"occlusion": numbers.by_head(numbers.correlations(with_mean(map.weights), change))}, name)
    return [(name, map), (f"{name}: change when left out", map._replace(weights=change[None, None]))]


def _sentence(settings: AttentionSettings, path: str) -> tuple[str, str | None, Gold | None]:
    """Returns the source sentence, its target (None: the model translates) and any gold links. path: of a checkpoint."""
    if settings.pair is None:
        return clean(settings.sentence), clean(settings.target or "") or None, None
    split, _, number = settings.pair.partition("/")
    corpus = stored_corpus(checkpoint.load(path), path, settings.trust_data)
    rows = corpus.split(split_of(split))
    if not number.isdecimal() or not 1 <= int(number) <= len(rows):
        raise InputError(f"pair={settings.pair}: give SPLIT/NUMBER, with a number from 1 to {len(rows)}")
    row, gold = rows[int(number) - 1], corpus.gold.get(split_of(split))
    return row["src"], row["tgt"], gold[int(number) - 1] if gold else None


def _of_kind(kind: AttentionKind | None, maps: Sequence[record.AttentionMap]) -> record.AttentionMap:
    """Returns the map of a kind, or of attention to the source if `kind` is None."""
    kinds = (record.KIND_NAMES[kind],) if kind else record.TO_SOURCE
    for map in maps:
        if map.kind in kinds:
            return map
    names = ", ".join(record.NAME_OF_KIND[map.kind] for map in maps)
    raise InputError(f"kind={kind or 'null'}: this model has {names}; choose one of these")
