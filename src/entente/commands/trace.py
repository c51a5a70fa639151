"""One attention step by step, with its numbers."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console

from entente import checkpoint
from entente.attention.record import read_sentence
from entente.attention.trace import trace
from entente.attention.trace.example import examples
from entente.attention.trace.render import markdown, show
from entente.attention.trace.steps import Labels, Trace
from entente.commands.translate import standard_output
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import path_of, writable, written_whole
from entente.process import prepare_process

log = logging.getLogger("entente")


def trace_attention(config: Mapping[str, Any]) -> None:
    """Prints one attention of a checkpoint, or every attention of the example, and writes the same as Markdown to `output`, if
    that is given."""
    prepare_process(config["threads"])
    output = path_of(config["output"]) if config["output"] else None
    if output and output.suffix.lower() != ".md":
        raise InputError(f"output={output}: give a name that ends in .md")
    chosen = [config[key] for key in ("kind", "layer", "head", "step")]
    if config["example"]:
        if config["checkpoint"]:
            raise InputError(f"checkpoint={config['checkpoint']}: an example has a model of its own; leave out one of both")
        traces = examples("transformer" if config["example"] is True else config["example"], *chosen)
    elif config["checkpoint"]:
        traces = [_trace(config, *chosen)]
    else:
        raise InputError("checkpoint is not set: give checkpoint=FILE, or example=true for a tiny model of its own")
    if output:
        with written_whole(output) as file:
            file.write(markdown(traces, config["columns"]).encode())
    console = Console(file=standard_output(), highlight=False)
    with writable("standard output"):
        for one in traces:
            show(one, console, config["columns"])
    if output:
        log.info("%s", output)


def _trace(config: Mapping[str, Any], *chosen: Any) -> Trace:
    """Of one sentence, and the target given or the model's own translation."""
    run = checkpoint.load(config["checkpoint"])
    src, tgt = read_sentence(run.model, run.vocabulary, config["sentence"], config["target"], Search())
    read, produced = (run.vocabulary.tgt.pieces(ids) for ids in ([BOS, *tgt], [*tgt, EOS]))
    labels = Labels(run.vocabulary.src.pieces(src), read, produced)
    return trace(run.model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]), [labels], *chosen)
