"""One attention step by step, with its numbers."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console

from entente import checkpoint
from entente.attention.record import read_sentence
from entente.attention.trace import Labels, Trace, examples, trace
from entente.attention.trace.render import markdown, show
from entente.commands import sentence
from entente.commands.translate import standard_output
from entente.config.schema import fill
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import path_of, writable, written_whole
from entente.process import prepare_process

log = logging.getLogger("entente")


def trace_attention(config: Mapping[str, Any]) -> None:
    """Prints one attention of a checkpoint, or every attention of the example, and writes the same as Markdown to `output`, if
    that is given."""
    settings = fill(sentence.Trace, "", config)
    prepare_process(settings.threads)
    output = path_of(settings.output) if settings.output else None
    if output and output.suffix.lower() != ".md":
        raise InputError(f"output={output}: give a name that ends in .md")
    traces = _traces(settings)
    if output:
        with written_whole(output) as file:
            file.write(markdown(traces, settings.columns).encode())
    console = Console(file=standard_output(), highlight=False)
    with writable("standard output"):
        for one in traces:
            show(one, console, settings.columns)
    if output:
        log.info("%s", output)


def _traces(settings: sentence.Trace) -> list[Trace]:
    """Those of the example; or that of a checkpoint, of one sentence, with the target given or the model's own translation."""
    chosen = settings.kind, settings.layer, settings.head, settings.step
    if settings.example:
        if settings.checkpoint:
            raise InputError(f"checkpoint={settings.checkpoint}: an example has a model of its own; leave out one of both")
        return examples("transformer" if settings.example is True else settings.example, *chosen)
    if not settings.checkpoint:
        raise InputError("checkpoint is not set: give checkpoint=FILE, or example=true for a tiny model of its own")
    run = checkpoint.load(settings.checkpoint)
    src, tgt = read_sentence(run.model, run.vocabulary, settings.sentence, settings.target, Search())
    read, produced = (run.vocabulary.tgt.pieces(ids) for ids in ([BOS, *tgt], [*tgt, EOS]))
    labels = Labels(run.vocabulary.src.pieces(src), read, produced)
    return [trace(run.model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]), [labels], *chosen)]
