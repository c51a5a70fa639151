# mypy: ignore-errors
"""Runs EOLE's own training loop, in an environment that has EOLE. Its Trainer, model, LossCompute and Optimizer are built from
an EOLE configuration, with_eole.yaml. Only the batches are ours, because all programs get the same batches."""

import time
from itertools import cycle, islice
from pathlib import Path

import eole
import torch
from eole.config.run import TrainConfig
from eole.inputters.inputter import build_vocab
from eole.models.model import get_model_class
from eole.trainer import build_trainer
from eole.utils.misc import set_random_seed
from eole.utils.optimizers import Optimizer

from benchmark.wire import PAD, Wire


def eole_batch(src, tgt):
    """Returns a batch as a dict with the same fields as a batch from EOLE's `tensorify`."""
    src, tgt, rows = torch.tensor(src), torch.tensor(tgt), len(src)
    lengths = {"srclen": src.ne(PAD).sum(1), "tgtlen": tgt.ne(PAD).sum(1), "prefix_len": None}
    position = {"ind_in_bucket": list(range(rows)), "cid": ["corpus"] * rows, "cid_line_number": list(range(rows))}
    return {"src": src, "tgt": tgt, **lengths, "images": None, "left_pad": False, **position}


def main():
    wire = Wire()
    spec = wire.settings
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"piece{i}" for i in range(4, spec["vocabulary"]))]
    Path(spec["template"]["src_vocab"]).write_text("".join(f"{piece}\t1\n" for piece in pieces), encoding="utf-8")
    config = TrainConfig(**spec["template"])
    vocabs = build_vocab(config, {"src": [], "tgt": []})
    numbers = len(vocabs["src"]), vocabs["src"]["<pad>"], vocabs["src"]["<s>"], vocabs["src"]["</s>"]
    assert numbers == (spec["vocabulary"], 0, 2, 3), f"EOLE numbers the vocabulary differently: {numbers}"
    set_random_seed(config.seed, False)
    model = get_model_class(config.model).for_training(config.model, vocabs, config.training, device_id=-1)
    optim = Optimizer.from_config(model, config)
    trainer = build_trainer(config, -1, model, vocabs, optim)
    our_batches = cycle([eole_batch(src, tgt) for src, tgt in spec["batches"]])
    wire.answer(version=eole.__version__, torch=torch.__version__, parameters=sum(p.numel() for p in model.parameters()))

    def batches():
        """Yields batches and answers requests. The wait for a request is not timed. EOLE asks for a batch after each step, so
        the time of a burst ends with its last step."""
        while True:
            steps, tokens, started = wire.request()["steps"], 0, time.perf_counter()
            for batch in islice(our_batches, steps):
                tokens += int(batch["tgt"][:, 1:].ne(PAD).sum())
                yield batch, 0
            wire.answer(seconds=time.perf_counter() - started, tokens=tokens)

    trainer.train(batches(), 0)


if __name__ == "__main__":
    main()
