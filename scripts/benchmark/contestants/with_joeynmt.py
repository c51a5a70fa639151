# mypy: ignore-errors
"""Trains with JoeyNMT's reader and training loop on our text and pieces, as the command `joeynmt train` does with the
configuration in with_joeynmt.yaml; or decodes with JoeyNMT's search. Needs an environment that has JoeyNMT.

JoeyNMT's own batches mix sentences of all lengths, so many positions are padding. If the settings contain batches, these
replace JoeyNMT's, which are then made in vain; this takes less than a hundredth of a step.
"""

import tempfile
import time
from itertools import cycle
from types import SimpleNamespace

import joeynmt
import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.training import TrainManager, train
from joeynmt.vocabulary import Vocabulary

from benchmark.wire import Wire

UNK, PAD, BOS, EOS = 0, 1, 2, 3  # JoeyNMT requires this order; in our batches PAD is 0 and UNK is 1


def architecture(model):
    dropout = {"dropout": model["dropout"]}
    if model["name"] == "transformer":
        sizes = {"num_layers": model["n_layers"], "num_heads": model["n_heads"], "ff_size": model["d_ff"]}
        embeddings = {"embedding_dim": model["d_model"], "scale": True, **dropout}
        part = {"type": "transformer", **sizes, "hidden_size": model["d_model"], "layer_norm": "pre", **dropout}
        encoder = decoder = {**part, "embeddings": embeddings}
        tied = True
    else:
        embeddings = {"embedding_dim": model["d_embedding"], "scale": False, **dropout}
        part = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "hidden_size": model["d_hidden"], **dropout}
        encoder = {**part, "bidirectional": True, "embeddings": embeddings}
        attention = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True}
        decoder = {**part, **attention, "hidden_dropout": model["dropout"], "embeddings": embeddings}
        tied = model["d_embedding"] == model["d_hidden"]
    return {"tied_embeddings": True, "tied_softmax": tied, "encoder": encoder, "decoder": decoder}


def about(model):
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"version": joeynmt.__version__, "torch": torch.__version__, "parameters": parameters}


class Bursts:
    """Replaces JoeyNMT's training step, since JoeyNMT has no callbacks. A burst ends when JoeyNMT calls the first step after
    it. batches: None for JoeyNMT's own."""

    def __init__(self, wire, batches):
        self.wire, self.batches = wire, batches and cycle(batches)
        self.remaining, self.tokens, self.started = 0, 0, None
        step = TrainManager._train_step
        TrainManager._train_step = lambda manager, batch: step(manager, self.next_batch(manager.model, batch))

    def next_batch(self, model, batch):
        if not self.remaining:
            if self.started is None:
                self.wire.answer(**about(model))
            else:
                self.wire.answer(seconds=time.perf_counter() - self.started, tokens=self.tokens)
            self.remaining, self.tokens, self.started = self.wire.request()["steps"], 0, time.perf_counter()
        if self.batches:
            batch = joeynmt_batch(*next(self.batches))
        self.remaining -= 1
        self.tokens += int(batch.ntokens)
        return batch


def joeynmt_batch(src, tgt=None):
    """Returns a JoeyNMT Batch. Its special symbols have JoeyNMT's ids, and its source lengths exclude padding."""
    src, tgt = (None if ids is None else torch.tensor(ids) for ids in (src, tgt))
    src, tgt = (None if ids is None else ids ^ (ids < 2) for ids in (src, tgt))  # swaps the ids 0 and 1
    indices, device = torch.arange(len(src)), torch.device("cpu")
    return Batch(src, src.ne(PAD).sum(1), None, tgt, None, indices, device, PAD, EOS, is_train=tgt is not None)


def decoding(spec, model):
    model.eval()
    options = {"max_output_length": spec["length"], "min_output_length": spec["length"], "beam_size": spec["beam"]}

    def burst(request):
        started = time.perf_counter()
        for src in spec["batches"]:
            search(model, joeynmt_batch(src), **options, beam_alpha=1.0, n_best=1)
        return {"seconds": time.perf_counter() - started, "sentences": sum(map(len, spec["batches"]))}

    return burst


def build(spec):
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": None}
    numbers = {"unk_id": UNK, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "sep_id": None, "lang_tags": []}
    pieces = [f"piece{i}" for i in range(4, spec["vocabulary"])]
    vocabulary = Vocabulary(pieces, SimpleNamespace(**names, **numbers))
    torch.manual_seed(spec["config"]["seed"])
    return build_model(architecture(spec["config"]["model"]), vocabulary, vocabulary)


def main():
    wire = Wire()
    spec = wire.settings
    if spec["task"] == "train":
        Bursts(wire, spec["batches"])
        parts = {"joeynmt_version": joeynmt.__version__, "model": architecture(spec["config"]["model"])}
        train(rank=0, world_size=None, cfg={**spec["template"], **parts, "model_dir": tempfile.mkdtemp()}, skip_test=True)
    else:
        model = build(spec)
        wire.serve(decoding(spec, model), **about(model))


if __name__ == "__main__":
    main()
