# mypy: ignore-errors
"""JoeyNMT, run by an interpreter that has it: its model, batch, loss, optimiser, training step and search. Ours are only the
batches, which the others get too, and the six lines around a training step, which stand amid its `train_and_validate`."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).parents[1]))

import joeynmt
import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.builders import build_gradient_clipper, build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary
from wire import Wire, serve, setting_file

PAD, UNK, BOS, EOS = 0, 1, 2, 3


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


def built(spec):
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"piece{i}" for i in range(4, spec["vocabulary"]))]
    vocabulary = Vocabulary.__new__(Vocabulary)  # its constructor would number the special pieces in another order
    vocabulary.specials, vocabulary.lang_tags, vocabulary.sep_index = pieces[:4], [], None
    vocabulary.pad_index, vocabulary.unk_index, vocabulary.bos_index, vocabulary.eos_index = PAD, UNK, BOS, EOS
    vocabulary._itos, vocabulary._stoi = pieces, {piece: i for i, piece in enumerate(pieces)}
    torch.manual_seed(spec["seed"])
    return build_model(
        (transformer if spec["model"]["name"] == "transformer" else birnn)(spec["model"]), vocabulary, vocabulary
    )


def as_theirs(src, tgt=None):
    """Their Batch; its source lengths count real tokens."""
    src = torch.from_numpy(src)
    tgt = None if tgt is None else torch.from_numpy(tgt)
    indices, device = torch.arange(len(src)), torch.device("cpu")
    return Batch(src, src.ne(PAD).sum(1), None, tgt, None, indices, device, PAD, EOS, is_train=tgt is not None)


def training(spec, model):
    optim = spec["optim"]
    model.loss_function = ("crossentropy", optim["label_smoothing"])
    optimizer = build_optimizer(
        {"optimizer": "adam", "learning_rate": optim["lr"], "adam_betas": (optim["beta1"], optim["beta2"])}, model.parameters()
    )
    clip = build_gradient_clipper({"clip_grad_val": None, "clip_grad_norm": spec["clip"] or None})
    arrays = dict(np.load(spec["batches"]))
    count = len(arrays) // 2
    manager = SimpleNamespace(  # what their training step reads of its manager
        model=model,
        autocast={"device_type": "cpu", "enabled": False},
        args=SimpleNamespace(normalization="tokens", batch_multiplier=1),
        n_gpu=0,
        scaler=None,
    )
    done = 0

    def burst(request):
        nonlocal done
        tokens, started = 0, time.perf_counter()
        for _ in range(request["steps"]):
            tgt = arrays[f"tgt{done % count}"]
            batch = as_theirs(arrays[f"src{done % count}"], tgt)
            TrainManager._train_step(manager, batch)
            if clip is not None:
                clip(parameters=model.parameters())
            optimizer.step()
            model.zero_grad()
            tokens += int((tgt[:, 1:] != PAD).sum())
            done += 1
        return {"seconds": time.perf_counter() - started, "tokens": tokens}

    model.train()
    model.zero_grad()
    return burst


def decoding(spec, model):
    model.eval()
    arrays = np.load(spec["sources"])
    batches = [arrays[f"src{i}"] for i in range(len(arrays.files))]
    length = spec["length"]

    def burst(request):
        started, sentences, tokens = time.perf_counter(), 0, 0
        for src in batches:
            found, _, _ = search(
                model,
                as_theirs(src),
                max_output_length=length,
                min_output_length=length,
                beam_size=spec["beam"],
                beam_alpha=1.0,
                n_best=1,
            )
            sentences += len(src)
            tokens += sum(len(row) for row in found)
        return {"seconds": time.perf_counter() - started, "sentences": sentences, "tokens": tokens}

    return burst


def main():
    wire = Wire()
    spec = setting_file()
    torch.set_num_threads(spec["threads"])
    model = built(spec)
    burst = (training if spec["task"] == "train" else decoding)(spec, model)
    about = {"version": joeynmt.__version__, "torch": torch.__version__}
    wire.answer(**about, parameters=sum(p.numel() for p in model.parameters()))
    serve(wire, burst)


if __name__ == "__main__":
    main()
