# mypy: ignore-errors
"""Runs JoeyNMT's model, batch class, loss, optimiser, training step and search, in an environment that has JoeyNMT. The rest
is ours: it reads the batches, which are the same for all programs, and does what JoeyNMT's `train_and_validate` does around
each training step."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parents[2]))

import joeynmt
import torch
from joeynmt.batch import Batch
from joeynmt.builders import build_gradient_clipper, build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary

from benchmark.batches import endless_batches, read_batches, target_tokens
from benchmark.wire import Wire

UNK, PAD, BOS, EOS = 0, 1, 2, 3  # JoeyNMT requires this order; in our batches PAD is 0 and UNK is 1


def architecture(model):
    return transformer(model) if model["name"] == "transformer" else birnn(model)


def transformer(model):
    part = {
        "type": "transformer",
        "num_layers": model["n_layers"],
        "num_heads": model["n_heads"],
        "embeddings": {"embedding_dim": model["d_model"], "scale": True, "dropout": model["dropout"]},
        "hidden_size": model["d_model"],
        "ff_size": model["d_ff"],
        "dropout": model["dropout"],
        "layer_norm": "pre",
    }
    return {"tied_embeddings": True, "tied_softmax": True, "encoder": part, "decoder": part}


def birnn(model):
    part = {
        "type": "recurrent",
        "rnn_type": "gru",
        "num_layers": 1,
        "embeddings": {"embedding_dim": model["d_embedding"], "scale": False, "dropout": model["dropout"]},
        "hidden_size": model["d_hidden"],
        "dropout": model["dropout"],
    }
    decoder = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True, "hidden_dropout": model["dropout"]}
    tied = model["d_embedding"] == model["d_hidden"]
    return {
        "tied_embeddings": True,
        "tied_softmax": tied,
        "encoder": {**part, "bidirectional": True},
        "decoder": part | decoder,
    }


def build(spec):
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": None}
    numbers = {"unk_id": UNK, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "sep_id": None, "lang_tags": []}
    pieces = [f"piece{i}" for i in range(4, spec["vocabulary"])]
    vocabulary = Vocabulary(pieces, SimpleNamespace(**names, **numbers))
    torch.manual_seed(spec["seed"])
    return build_model(architecture(spec["model"]), vocabulary, vocabulary)


def joeynmt_batch(src, tgt=None):
    """Returns a JoeyNMT Batch. Its special symbols have JoeyNMT's ids, and its source lengths exclude padding."""
    src, tgt = (None if ids is None else torch.from_numpy(ids ^ (ids < 2)) for ids in (src, tgt))  # swaps the ids 0 and 1
    indices, device = torch.arange(len(src)), torch.device("cpu")
    return Batch(src, src.ne(PAD).sum(1), None, tgt, None, indices, device, PAD, EOS, is_train=tgt is not None)


def training(spec, model):
    optim = spec["optim"]
    model.loss_function = ("crossentropy", optim["label_smoothing"])
    optimizer = build_optimizer(
        {"optimizer": "adam", "learning_rate": optim["lr"], "adam_betas": (optim["beta1"], optim["beta2"])}, model.parameters()
    )
    clip = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": spec["clip"] or None})
    batches = endless_batches(spec["batches"])
    manager = SimpleNamespace(  # has all attributes that JoeyNMT's training step reads
        model=model,
        autocast={"device_type": "cpu", "enabled": False},
        args=SimpleNamespace(normalization="tokens", batch_multiplier=1),
        n_gpu=0,
        scaler=None,
    )

    def burst(request):
        tokens, started = 0, time.perf_counter()
        for _ in range(request["steps"]):
            src, tgt = next(batches)
            TrainManager._train_step(manager, joeynmt_batch(src, tgt))
            if clip is not None:
                clip(parameters=model.parameters())
            optimizer.step()
            model.zero_grad()
            tokens += target_tokens(tgt)
        return {"seconds": time.perf_counter() - started, "tokens": tokens}

    model.train()
    model.zero_grad()
    return burst


def decoding(spec, model):
    model.eval()
    batches = read_batches(spec["batches"])
    length = spec["length"]

    def burst(request):
        started, sentences = time.perf_counter(), 0
        for src, _ in batches:
            search(
                model,
                joeynmt_batch(src),
                max_output_length=length,
                min_output_length=length,
                beam_size=spec["beam"],
                beam_alpha=1.0,
                n_best=1,
            )
            sentences += len(src)
        return {"seconds": time.perf_counter() - started, "sentences": sentences}

    return burst


def main():
    wire = Wire()
    spec = wire.settings
    torch.set_num_threads(spec["threads"])
    model = build(spec)
    burst = (training if spec["task"] == "train" else decoding)(spec, model)
    about = {"version": joeynmt.__version__, "torch": torch.__version__}
    wire.answer(**about, parameters=sum(p.numel() for p in model.parameters()))
    wire.serve(burst)


if __name__ == "__main__":
    main()
