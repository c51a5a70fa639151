"""Print, step by step, what one attention head computes. Each step shows its tensors, with shapes and values.

entente trace checkpoint=outputs/RUN kind=cross layer=1 head=1
entente trace example=true
entente trace example=birnn output=trace.md
"""

from pathlib import Path

import torch
from rich.console import Console

from entente import checkpoint
from entente.attention import record
from entente.attention.trace import Labels, examples, show, trace
from entente.commands.settings import TraceSettings
from entente.commands.translate import standard_output
from entente.console import log
from entente.data.text import clean
from entente.data.tokenizer import BOS, EOS
from entente.files import write_text


def main(settings: TraceSettings) -> None:
    numbers = settings.layer, settings.head, settings.step
    if settings.example:
        text = examples("transformer" if settings.example is True else settings.example, settings.kind, numbers)
    else:
        run = checkpoint.load(str(settings.checkpoint))
        src, tgt = record.read_sentence(run, settings.sentence, clean(settings.target or "") or None)
        read, produced = (run.vocabulary.tgt.pieces(ids) for ids in ([BOS, *tgt], [*tgt, EOS]))
        labels = Labels(run.vocabulary.src.pieces(src), read, produced)
        text = trace(run.model, torch.tensor([src]), torch.tensor([[BOS, *tgt]]), [labels], settings.kind, numbers)
    if settings.output:
        write_text(Path(settings.output), f"{text}\n")
    show(text, Console(file=standard_output(), highlight=False))
    if settings.output:
        log.info("%s", settings.output)
