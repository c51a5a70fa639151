"""Measure what each head and each sublayer is worth. BLEU and NLL are measured without it: heads are muted, and sublayers
skipped, one at a time, in the trained model (as Michel et al. 2019 for heads).

entente importance checkpoint=outputs/RUN split=test
entente importance checkpoint=outputs/RUN split=valid search.beam=5
entente importance checkpoint=model.ckpt src=my.fr tgt=my.en output=FOLDER
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from entente.attention.draw import draw_heads
from entente.attention.hook_points import points
from entente.attention.interventions import Intervention, mute, mute_part, skip
from entente.attention.record import KIND_NAMES, kind_of
from entente.commands.scoring import Outcome, outcomes_of, prepare, show
from entente.commands.settings import ImportanceSettings
from entente.console import log
from entente.decoding.search import search_name
from entente.errors import InputError
from entente.evaluation import bleu_tokenizer
from entente.files import open_atomic, write_json
from entente.models.transformer import Transformer
from entente.training.trainer import on_accelerator

Grids = dict[str, list[list[Intervention]]]  # what is taken away, in the rows and columns of the picture, by group


def main(settings: ImportanceSettings) -> None:
    output = Path(settings.output or settings.checkpoint)
    if not settings.output and not output.is_dir():
        raise InputError(f"checkpoint={settings.checkpoint}: not a run's directory; give output=FOLDER for the results")
    run, data, search = prepare(settings)
    grids = grids_of(run.model)
    split = next(iter(data.corpus.tests)) if settings.src else settings.split
    lists = [[intervention] for rows in grids.values() for row in rows for intervention in row]
    tokenize = bleu_tokenizer(run.settings, run.settings.evaluation)
    with on_accelerator(run.model, settings.accelerator, run.settings.trainer.precision):
        plain, *outcomes = outcomes_of(run, data, split, lists, search, tokenize, output)
    content = {"split": split, "search": search_name(search), "plain": plain._asdict()}
    write_json(output / "importance.json", content | {"parts": [outcome._asdict() for outcome in outcomes]})
    title = f"{run.summary()}: {split}, {search_name(search)}, BLEU {plain.bleu:.2f}, NLL {plain.nll:.3f}"
    figure = draw_heads(losses(grids, outcomes, plain), title)
    for suffix in (".png", ".svg"):
        with open_atomic(output / f"importance{suffix}") as file:
            figure.savefig(file, format=suffix[1:])
    show([plain, *sorted(outcomes, key=lambda row: row.bleu)], title)
    log.info("%s, with importance.png and importance.svg", output / "importance.json")


def grids_of(model: Any) -> Grids:
    """Returns what is taken away: every head and every sublayer of a Transformer, with a row per layer; the alignment and the
    parts of the readout of a BiRNN."""
    names, grids = points(model), Grids()
    if not isinstance(model, Transformer):
        if "alignment.hook_pattern" in names:
            grids["alignment, uniform"] = [[mute("alignment", to="uniform")]]
        parts = [part for part in ("state", "word", "context") if f"readout.hook_{part}" in names]
        return grids | {f"readout: {part}": [[mute_part(part)]] for part in parts}
    for name, z in names.items():
        if name.endswith(".hook_z"):
            kind, layer = kind_of(name), 1 + int(name.split(".")[1])
            grids.setdefault(KIND_NAMES[kind], []).append([mute(kind, layer, head) for head in range(1, 1 + z.n_heads)])
    for side in ("encoder", "decoder"):
        for layer, block in enumerate(getattr(model, side), start=1):
            group = f"{side} sublayers: {', '.join(block.present)}"
            grids.setdefault(group, []).append([skip(side, name, layer) for name in block.present])
    return grids


def losses(grids: Grids, outcomes: Iterable[Outcome], plain: Outcome) -> dict[str, dict[str, torch.Tensor]]:
    """Returns for `draw_heads` what BLEU and NLL lose without each part, by group."""
    values, rest = {}, iter(outcomes)
    for group, rows in grids.items():
        grid = [[next(rest) for _ in row] for row in rows]
        values[group] = {
            "BLEU lost": torch.tensor([[plain.bleu - outcome.bleu for outcome in row] for row in grid]),
            "NLL added": torch.tensor([[outcome.nll - plain.nll for outcome in row] for row in grid]),
        }
    return values
