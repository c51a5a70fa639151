# mypy: ignore-errors
"""Runs JoeyNMT as the command `joeynmt train` does, with JoeyNMT's reader, batches and training loop, on our text and pieces.
JoeyNMT's batches mix sentences of all lengths, so many positions are padding."""

import shutil
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import joeynmt
import torch
from joeynmt.config import load_config
from joeynmt.helpers import make_model_dir
from joeynmt.training import TrainManager, train
from with_joeynmt import architecture
from yaml import safe_dump

from benchmark.wire import Wire

ENDLESS = 10**9


class NoMoreRequests(Exception):
    """Raised to leave JoeyNMT's training loop."""


def configuration(spec, folder):
    model, optim = spec["model"], spec["optim"]
    side = {"level": "bpe", "voc_file": spec["pieces"], "tokenizer_type": "sentencepiece"}
    side["tokenizer_cfg"] = {"model_file": spec["tokenizer"]}
    text = Path(spec["text"])
    return {
        "name": "benchmark",
        "joeynmt_version": joeynmt.__version__,
        "model_dir": str(folder),
        "use_cuda": False,
        "random_seed": spec["seed"],
        "normalization": "tokens",
        "data": {
            "train": str(text),
            "dev": str(text),  # required by JoeyNMT, although training ends before the first validation
            "dataset_type": "plain",
            "sample_dev_subset": 1,
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
            "special_symbols": {},  # JoeyNMT's defaults: our names, but with JoeyNMT's ids (see with_joeynmt.py)
        },
        "testing": {"beam_size": 1, "eval_metrics": ["bleu"]},
        "training": {
            "model_dir": str(folder),
            "overwrite": True,
            "optimizer": "adam",
            "learning_rate": optim["lr"],
            "learning_rate_min": 0.0,
            "scheduling": "noam",
            "adam_betas": [optim["beta1"], optim["beta2"]],
            "clip_grad_norm": spec["clip"] or None,
            "label_smoothing": optim["label_smoothing"],
            "batch_size": spec["max_tokens"],
            "batch_type": "token",
            "epochs": ENDLESS,
            "validation_freq": ENDLESS,
            "logging_freq": 100,  # JoeyNMT's default
        },
        "model": architecture(model),
    }


class Bursts:
    """Wraps JoeyNMT's training step to time bursts of steps. A burst ends when JoeyNMT calls the first step after it."""

    def __init__(self, wire):
        self.wire, self.requests = wire, wire.requests()
        self.left, self.tokens, self.started = 0, 0, None
        self.step = TrainManager._train_step

    def train_step(self, manager, batch):
        if self.started is None:
            parameters = sum(p.numel() for p in manager.model.parameters())
            self.wire.answer(version=joeynmt.__version__, torch=torch.__version__, parameters=parameters)
        elif not self.left:
            self.wire.answer(seconds=time.perf_counter() - self.started, tokens=self.tokens)
        if not self.left:
            request = next(self.requests, None)
            if request is None:
                raise NoMoreRequests
            self.left, self.tokens, self.started = request["steps"], 0, time.perf_counter()
        self.left -= 1
        self.tokens += int(batch.ntokens)
        return self.step(manager, batch)


def main():
    wire = Wire()
    spec = wire.settings
    torch.set_num_threads(spec["threads"])
    folder = Path(spec["text"]).with_name(f"joeynmt-{spec['model']['name']}")
    path = folder.with_suffix(".yaml")
    path.write_text(safe_dump(configuration(spec, folder)), encoding="utf-8")
    settings = load_config(path)
    make_model_dir(folder, overwrite=True)
    bursts = Bursts(wire)
    TrainManager._train_step = lambda manager, batch: bursts.train_step(manager, batch)  # JoeyNMT has no callbacks
    try:
        train(rank=0, world_size=None, cfg=settings, skip_test=True)
    except NoMoreRequests:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
