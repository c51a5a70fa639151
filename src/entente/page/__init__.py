"""Writes a page on which one or two trained models are taken apart: one HTML file that holds their weights, and computes them
in the browser (forward.js), without a server or a network.

Shapes: L layers, H heads.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from entente.checkpoint import TrainedRun
from entente.data import text
from entente.data.alignments import Gold
from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.models.seq2seq import Seq2Seq, parameter_count
from entente.validation import to_text

FOLDER = Path(__file__).parent
SCRIPTS = ("forward.js", "tokenizer.js", "search.js", "interventions.js", "texts.js", "map.js", "view.js")
LIMIT = 128  # pieces that the page reads
# Regular expressions with which text is cleaned and split into words: they mean the same in JavaScript.
PATTERNS = {
    "invisible": text.INVISIBLE.pattern,
    "spaces": text.SPACES.pattern,
    "separators": text.SEPARATORS.pattern,
    "apostrophes": f"[{''.join(map(chr, text.APOSTROPHES))}]",
    "spacesBeforeMarks": text.MARK_SPACES.pattern,
    "unspaced": text.UNSPACED,
    "character": text.CHARACTER,
}
TEMPLATES = Environment(loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


class Sentence(NamedTuple):
    """A sentence to choose from. gold: the links of its words, if they are known, with spans in `source` and `reference`."""

    source: str
    reference: str
    gold: Gold | None = None


class Shown(NamedTuple):
    """A model on the page. path: as `entente.load` takes it. metrics: the content of metrics.json, or {}. importance: that of
    importance.json, or {}. errors: the alignment error rate of each head of the attention to the source (L, H), if it is
    known, at the step that fits it better."""

    name: str
    path: str
    run: TrainedRun
    metrics: Mapping[str, Any]
    importance: Mapping[str, Any]
    errors: list[list[float]]


def html(models: Sequence[Shown], sentences: Sequence[Sentence]) -> str:
    """Returns the page. Its first view is the first sentence."""
    shapes, values = zip(*(weights(shown.run.model) for shown in models), strict=True)
    content = {
        "models": [_model(shown, models[0].run) | {"shapes": of_model} for shown, of_model in zip(models, shapes, strict=True)],
        "sentences": [_sentence(sentence, models[0].run.vocabulary) for sentence in sentences],
        "patterns": PATTERNS,
        "limit": LIMIT,
    }
    return render(content, values)


def render(content: Mapping[str, Any], weights: Sequence[str]) -> str:
    """Returns the page with this content. weights: those of each model, as `weights` returns them."""
    return TEMPLATES.get_template("page.html.j2").render(
        title=" / ".join(model["name"] for model in content["models"]),
        style=(FOLDER / "style.css").read_text(encoding="utf-8"),
        scripts=[(FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS],
        content=json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        weights=weights,
    )


def weights(model: Seq2Seq) -> tuple[list[tuple[list[str], list[int]]], str]:
    """Returns the names and the shape of each parameter, and all values as float16 in base64. Tied parameters are one."""
    names: dict[int, list[str]] = {}
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        names.setdefault(tensor.data_ptr(), []).append(name)
    parts = [tensors[same[0]].cpu().half().contiguous() for same in names.values()]
    values = b"".join(part.numpy().tobytes() for part in parts)
    shapes = [(same, list(part.shape)) for same, part in zip(names.values(), parts, strict=True)]
    return shapes, base64.b64encode(values).decode()


def _model(shown: Shown, first: TrainedRun) -> dict[str, Any]:
    """Returns a model of the page. first: the page's first model, whose settings are compared."""
    run, vocabulary = shown.run, shown.run.vocabulary
    settings, others = dict(run.settings.model), dict(first.settings.model)
    differences = {key: value for key, value in settings.items() if others.get(key) != value}
    splits = [split for split in shown.metrics if split != "valid"] or [*shown.metrics]
    search = run.settings.search.model_dump(include={"length_penalty", "length_factor", "length_offset"})
    return {
        "name": shown.name,
        "path": shown.path,
        "kind": type(run.model).__name__,
        "parameters": parameter_count(run.model),
        "steps": run.step,
        "smoothing": run.settings.optim.label_smoothing,
        "score": {"split": splits[0], "bleu": shown.metrics[splits[0]]["bleu"]} if splits else None,
        "differences": " ".join(f"model.{key}={to_text(value)}" for key, value in differences.items()),
        "languages": run.languages,
        "settings": run.settings.model.model_dump(mode="json"),
        "search": search,
        "src": tokenizer_data(vocabulary.src, run.settings.data.tokenizer.type),
        "tgt": None if vocabulary.joint else tokenizer_data(vocabulary.tgt, run.settings.data.tokenizer.type),
        "words": " ".join(sorted(run.words)),
        "importance": shown.importance,
        "errors": shown.errors,
    }


def tokenizer_data(side: Tokenizer, type: str) -> dict[str, Any]:
    """Returns what the Tokenizer of tokenizer.js is made from. type: bpe or unigram."""
    ids = range(len(side))
    return {"pieces": side.pieces(ids), "scores": side.scores(ids), "type": type, "plain": side.plain}


def _sentence(sentence: Sentence, vocabulary: Vocabulary) -> dict[str, Any]:
    gold = sentence.gold
    links = gold and {
        "src": vocabulary.src.place(sentence.source, gold.src),
        "tgt": gold.tgt,
        "sure": sorted(gold.sure),
        "possible": sorted(gold.possible),
    }
    return {"source": sentence.source, "reference": sentence.reference, "gold": links}
