"""Measure what each head and each sublayer is worth: what BLEU and NLL become without it. Heads are muted, and sublayers are
skipped, one at a time, in the trained model (as Michel et al. 2019 for heads).

entente importance checkpoint=outputs/RUN split=test
entente importance checkpoint=outputs/RUN split=valid search.beam=5
entente importance checkpoint=model.ckpt src=my.fr tgt=my.en output=FOLDER
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from entente import checkpoint
from entente.attention.draw import draw_heads
from entente.attention.hook_points import points
from entente.attention.interventions import Intervention, mute, mute_part, skip
from entente.attention.record import KIND_NAMES
from entente.commands.outcomes import Outcome, outcomes_of, table
from entente.commands.settings import ImportanceSettings
from entente.commands.stored import scored_data
from entente.console import log
from entente.decoding.search import search_name, with_changes
from entente.errors import InputError
from entente.evaluation import bleu_tokenizer
from entente.files import open_atomic, write_json
from entente.models.transformer import Transformer
from entente.process import prepare_process
from entente.training.trainer import on_accelerator


class Part(NamedTuple):
    """What is taken away, and where the picture shows it: in a row and a column of a group."""

    group: str
    row: int
    column: int
    intervention: Intervention


def main(settings: ImportanceSettings) -> None:
    """Prints what each part is worth, and writes importance.json and a picture."""
    output = Path(settings.output or settings.checkpoint)
    if not settings.output and not output.is_dir():
        raise InputError(f"checkpoint={settings.checkpoint}: not a run's directory; give output=FOLDER for the results")
    prepare_process(settings.threads)
    run = checkpoint.load(settings.checkpoint)
    search, parts = with_changes(run.settings.search, settings.search.model_dump()), [*parts_of(run.model)]
    data = scored_data(settings, run)
    split = next(iter(data.corpus.tests)) if settings.src else settings.split
    lists, tokenize = [[part.intervention] for part in parts], bleu_tokenizer(run.settings, run.settings.evaluation)
    with on_accelerator(run.model, settings.accelerator, run.settings.trainer.precision):
        plain, *outcomes = outcomes_of(run, data, split, lists, search, tokenize, output)
    content = {"split": split, "search": search_name(search), "plain": plain._asdict()}
    write_json(output / "importance.json", content | {"parts": [outcome._asdict() for outcome in outcomes]})
    title = f"{run.summary()}: {split}, {search_name(search)}, BLEU {plain.bleu:.2f}, NLL {plain.nll:.3f}"
    values, largest = losses(parts, outcomes, plain)
    figure = draw_heads(values, title, largest)
    for suffix in (".png", ".svg"):
        with open_atomic(output / f"importance{suffix}") as file:
            figure.savefig(file, format=suffix[1:])
    Console(markup=False, emoji=False).print(table([plain, *sorted(outcomes, key=lambda row: row.bleu)], title))
    log.info("%s, with importance.png and importance.svg", output / "importance.json")


def parts_of(model: Any) -> Iterator[Part]:
    """Yields every head and every sublayer of a Transformer, or the alignment and the parts of the readout of a BiRNN."""
    names = points(model)
    if not isinstance(model, Transformer):
        if "alignment.hook_pattern" in names:
            yield Part("alignment, uniform", 0, 0, mute("alignment", to="uniform"))
        for part in ("state", "word", "context"):
            if f"readout.hook_{part}" in names:
                yield Part(f"readout: {part}", 0, 0, mute_part(part))
        return
    for kind, place in (("encoder", "attn"), ("decoder", "attn"), ("cross", "cross_attn")):
        side = "encoder" if kind == "encoder" else "decoder"
        for row in range(len(getattr(model, side))):
            z = names.get(f"{side}.{row}.{place}.hook_z")
            yield from (
                Part(KIND_NAMES[kind], row, head, mute(kind, row + 1, head + 1)) for head in range(z.n_heads if z else 0)
            )
    for side in ("encoder", "decoder"):
        for row, block in enumerate(getattr(model, side)):
            group = f"{side} sublayers: {', '.join(block.present)}"
            yield from (Part(group, row, column, skip(side, name, row + 1)) for column, name in enumerate(block.present))


def losses(
    parts: Sequence[Part], outcomes: Sequence[Outcome], plain: Outcome
) -> tuple[dict[str, dict[str, Tensor]], dict[str, float]]:
    """Returns for `draw_heads` what BLEU and NLL lose without each part, by group, and the largest loss of each."""
    values: dict[str, dict[str, Tensor]] = {}
    for group in dict.fromkeys(part.group for part in parts):
        cells = [(part, outcome) for part, outcome in zip(parts, outcomes, strict=True) if part.group == group]
        size = 1 + max(part.row for part, _ in cells), 1 + max(part.column for part, _ in cells)
        values[group] = {"BLEU lost": torch.full(size, torch.nan), "NLL added": torch.full(size, torch.nan)}
        for part, outcome in cells:
            values[group]["BLEU lost"][part.row, part.column] = plain.bleu - outcome.bleu
            values[group]["NLL added"][part.row, part.column] = outcome.nll - plain.nll
    largest = {
        name: max(1e-9, *(float(of_group[name].nan_to_num().max()) for of_group in values.values()))
        for name in ("BLEU lost", "NLL added")
    }
    return values, largest
