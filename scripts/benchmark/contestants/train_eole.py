# mypy: ignore-errors
"""Runs EOLE's own training loop, in an environment that has EOLE. Its Trainer, model, LossCompute and Optimizer are built from
an EOLE configuration. Only the batches are ours, because all programs get the same batches."""

import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import eole
import torch
from eole.config.run import TrainConfig
from eole.inputters.inputter import build_vocab
from eole.models.model import get_model_class
from eole.trainer import build_trainer
from eole.utils.misc import set_random_seed
from eole.utils.optimizers import Optimizer

from benchmark.batches import endless_batches, target_tokens
from benchmark.wire import Wire


def configuration(spec, vocabulary_file, folder):
    model, optim = spec["model"], spec["optim"]
    return TrainConfig(
        data={},
        src_vocab=vocabulary_file,
        tgt_vocab=vocabulary_file,
        share_vocab=True,
        vocab_size_multiple=1,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        decoder_start_token="<s>",
        seed=spec["seed"],
        report_every=50,
        model={
            "architecture": "transformer",
            "layers": model["n_layers"],
            "hidden_size": model["d_model"],
            "heads": model["n_heads"],
            "transformer_ff": model["d_ff"],
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "embeddings": {"word_vec_size": model["d_model"], "position_encoding_type": "SinusoidalInterleaved"},
            "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        training={
            "optim": "adam",
            "learning_rate": optim["lr"],
            "adam_beta1": optim["beta1"],
            "adam_beta2": optim["beta2"],
            "decay_method": "none",
            "max_grad_norm": spec["clip"],
            "label_smoothing": optim["label_smoothing"],
            "dropout": [model["dropout"]],
            "attention_dropout": [model["attention_dropout"]],
            "dropout_steps": [0],
            "normalization": "tokens",
            "compute_dtype": "fp32",
            "accum_count": [1],
            "accum_steps": [0],
            "train_steps": 10**9,
            "num_workers": 0,
            "batch_type": "tokens",
            "batch_size": 4096,
            "world_size": 1,
            "gpu_ranks": [],
            "model_path": folder,
        },
    )


def eole_batch(src, tgt):
    """Returns a batch as a dict with the same fields as a batch from EOLE's `tensorify`."""
    src, tgt = torch.from_numpy(src), torch.from_numpy(tgt)
    rows = len(src)
    lengths = {"srclen": src.ne(0).sum(1), "tgtlen": tgt.ne(0).sum(1), "prefix_len": None}
    where = {"ind_in_bucket": list(range(rows)), "cid": ["corpus"] * rows, "cid_line_number": list(range(rows))}
    return {"src": src, "tgt": tgt, **lengths, "images": None, "left_pad": False, **where}


def main():
    wire = Wire()
    torch.set_num_threads(wire.settings["threads"])
    with tempfile.TemporaryDirectory() as folder:
        train(wire.settings, wire, folder)


def train(spec, wire, folder):
    pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"piece{i}" for i in range(4, spec["vocabulary"]))]
    file = Path(folder, "pieces.vocab")
    file.write_text("".join(f"{piece}\t1\n" for piece in pieces), encoding="utf-8")
    config = configuration(spec, str(file), folder)
    vocabs = build_vocab(config, {"src": [], "tgt": []})
    there = len(vocabs["src"]), vocabs["src"]["<pad>"], vocabs["src"]["<s>"], vocabs["src"]["</s>"]
    assert there == (spec["vocabulary"], 0, 2, 3), f"EOLE numbers the vocabulary differently: {there}"
    set_random_seed(spec["seed"], False)
    model = get_model_class(config.model).for_training(config.model, vocabs, config.training, device_id=-1)
    optim = Optimizer.from_config(model, config)
    trainer = build_trainer(config, -1, model, vocabs, optim)
    given = endless_batches(spec["batches"])
    wire.answer(version=eole.__version__, torch=torch.__version__, parameters=sum(p.numel() for p in model.parameters()))

    def batches():
        """Yields batches and answers requests. The wait for a request is not timed. EOLE asks for a batch after each step, so
        the time of a burst ends with its last step."""
        for request in wire.requests():
            tokens, started = 0, time.perf_counter()
            for _ in range(request["steps"]):
                src, tgt = next(given)
                tokens += target_tokens(tgt)
                yield eole_batch(src, tgt), 0
            wire.answer(seconds=time.perf_counter() - started, tokens=tokens)

    trainer.train(batches(), 0)


if __name__ == "__main__":
    main()
