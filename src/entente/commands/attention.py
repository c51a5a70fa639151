"""Pictures of where trained checkpoints look in one sentence: every attention of one, or of several side by side."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from entente import checkpoint
from entente.attention.numbers import Pair, occlusion_table
from entente.attention.pictures import Attended, attended, changes, pictures
from entente.attention.record import AttentionMap
from entente.attention.sentence import read_sentence
from entente.commands.trained import load_run, stored_corpus
from entente.data.alignments import Gold
from entente.data.files import clean
from entente.data.module import split_of
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import made, path_of, writable, written_whole
from entente.process import prepare_process

log = logging.getLogger("entente")

FORMATS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".eps", ".ps", ".tif", ".tiff")
IN_FOLDER = (".png", ".svg")  # each picture, if a folder is asked for
FRAMES = "Frames: the gold links, sure ones with solid lines, possible ones with dashed lines."


class Text(NamedTuple):
    """A source, perhaps a target to read instead of the model's own translation, and gold links."""

    source: str
    target: str | None = None
    gold: Gold | None = None


def picture_attention(config: Mapping[str, Any]) -> None:
    """Of one checkpoint: a picture of each kind of attention with all layers and heads, and one of the chosen head (or mean)
    large; in a folder as PNG and SVG. Of several, or if `output` names a picture: the attention to the source alone."""
    prepare_process(config["threads"])
    paths = [config["checkpoint"]] if isinstance(config["checkpoint"], str) else config["checkpoint"]
    if not paths:
        raise InputError("checkpoint=[]: give one at least")
    output = _output(config["output"])
    one_picture = bool(output.suffix)
    text = _text(config, paths[0])
    models = [_attended(path, text, i, config) for i, path in enumerate(paths, start=1 if len(paths) > 1 else 0)]
    translations = [f"{one.name}: {one.vocabulary.tgt.decode(one.pair.tgt)}" for one in models]
    read = [f"given, not translated: {text.target}"] if text.target else translations
    title = "\n".join([text.source, *read, *([FRAMES] if text.gold else [])])
    occluded: dict[str, AttentionMap] = {}
    tables = []
    for one in models if config["occlusion"] else []:
        maps, agreement = changes(one)
        occluded.update(maps)
        tables.append(occlusion_table(one.name, agreement))
    choice = {key: config[key] for key in ("kind", "layer", "head")}
    for name, figure in pictures(models, title, **choice, one_kind=one_picture, occluded=occluded):
        for path in [output] if one_picture else [output / f"{name}{suffix}" for suffix in IN_FOLDER]:
            with writable(f"output={config['output']}"), made(path.parent), written_whole(path) as file:
                figure.savefig(file, format=path.suffix[1:].lower())
            log.info("%s", path)
        if one_picture:
            break
    for table in tables:
        Console().print(table)


def _text(config: Mapping[str, Any], path: str) -> Text:
    if config["pair"] is None:
        return Text(clean(config["sentence"]), clean(config["target"] or "") or None)
    split, _, number = config["pair"].partition("/")
    corpus = stored_corpus(load_run(path, "cpu"), path, config["trust_data"])
    rows = corpus.split(split_of(split))
    if not number.isdecimal() or not 1 <= int(number) <= len(rows):
        raise InputError(f"pair={config['pair']}: give SPLIT/NUMBER, a number from 1 to {len(rows)}")
    row, gold = rows[int(number) - 1], corpus.gold.get(split)
    return Text(row["src"], row["tgt"], gold[int(number) - 1] if gold else None)


def _attended(path: str, text: Text, number: int, config: Mapping[str, Any]) -> Attended:
    """number: of several checkpoints; 0 if there is one."""
    run = checkpoint.load(path)
    src, tgt = read_sentence(run.model, run.vocabulary, text.source, text.target, Search(beam=config["beam"]))
    name = run.config["model"]["name"]
    pair = Pair(src, tgt, text.gold)
    words = config["words"] or config["occlusion"]
    one = attended(f"{number}. {name}" if number else name, run.model, run.vocabulary, pair, words)
    if not one.maps:
        raise InputError(f"checkpoint={path}: this model has no attention to its source, nor any; give another checkpoint")
    return one


def _output(path: str) -> Path:
    """A folder, or a picture that can be written."""
    output = path_of(path)
    if output.suffix and output.suffix.lower() not in FORMATS and not output.is_dir():
        raise InputError(f"output={path}: no kind of picture; give a folder, or a name that ends in {', '.join(FORMATS)}")
    if output.suffix and output.is_dir():
        raise InputError(f"output={path}: this is a folder; give a file")
    if output.suffix and not output.parent.is_dir():
        raise InputError(f"output={path}: cannot be written, {output.parent} is no folder; make it, or give another")
    return output
