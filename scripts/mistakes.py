"""Trains with a mistake in the loss that no setting makes:  python scripts/mistakes.py MISTAKE [OVERRIDE ...]

    unshifted   the decoder reads the very pieces that it is to predict: the target without <s>, not the one without </s>
    padding     the loss also counts the padding, as with an `ignore_index` that is not the id of padding

Validation makes the same mistake, as it does in a program that has one; translations are made as always. The same command with
resume=auto resumes a run; `entente train resume=` would train on without the mistake.

Shapes: B batch, T target length with both ends, D model width.
"""

import sys

from entente import evaluation
from entente.commands.train import train
from entente.console import exit_codes, start_log
from entente.data.batches import Batch
from entente.errors import InputError
from entente.models.seq2seq import Loss, Seq2Seq
from entente.training import translator


def unshifted(model: Seq2Seq, batch: Batch, label_smoothing: float = 0.0) -> tuple[Loss, int]:
    target = batch.tgt[:, 1:]  # (B, T - 1)
    hidden = model(batch.src, target)  # (B, T - 1, D)
    return model.loss(hidden.flatten(0, 1)[batch.real], target.flatten()[batch.real], label_smoothing), len(batch.real)


def padding(model: Seq2Seq, batch: Batch, label_smoothing: float = 0.0) -> tuple[Loss, int]:
    target = batch.tgt[:, 1:].flatten()
    hidden = model(batch.src, batch.tgt[:, :-1])  # (B, T - 1, D)
    counted = len(batch.real) if batch.step_tokens else len(target)  # in training, the share of the step's real tokens
    return model.loss(hidden.flatten(0, 1), target, label_smoothing), counted


MISTAKES = {"unshifted": unshifted, "padding": padding}


def main(mistake: str, *overrides: str) -> None:
    if mistake not in MISTAKES:
        raise InputError(f"{mistake}: choose one of {', '.join(MISTAKES)}")
    for module in (translator, evaluation):
        module.batch_loss = MISTAKES[mistake]  # type: ignore[attr-defined]
    train([f"variant={mistake}", *overrides])


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) < 2:
            raise InputError("give a mistake, and settings such as experiment=ablation_baseline")
        main(*sys.argv[1:])
