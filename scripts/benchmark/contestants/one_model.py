"""Measures training and greedy decoding of one model on one batch of random token ids, for scripts/growth.py."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import torch

from benchmark.wire import Answer, Wire, peak_kb
from entente.data.tokenizer import BOS, EOS, PAD, SPECIAL
from entente.decoding.search import Search, search
from entente.fast.attach import attach, packed
from entente.models import MODELS
from entente.models.seq2seq import evaluating, parameter_count
from entente.process import prepare_process
from entente.training.optimiser import Optim

IMPOSSIBLE_ID = -1  # an end symbol that no model produces, so that every sentence is decoded to the length limit


def random_batch(length: int, vocabulary: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns src (B, S) and tgt (B, S + 1). S is `length`, end symbol included; B is as large as `tokens` allows."""
    rows = max(1, tokens // length)
    ids = torch.randint(len(SPECIAL), vocabulary, (2, rows, length), generator=torch.Generator().manual_seed(1))
    ids[:, :, -1] = EOS
    return ids[0], torch.cat([torch.full((rows, 1), BOS), ids[1]], dim=1)


def seconds_per_call(call: Callable[[], object], at_least: float) -> float:
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < at_least or not calls:
        call()
        calls += 1
    return passed / calls


def main() -> None:
    wire = Wire()
    spec = wire.settings
    prepare_process(spec["threads"])
    idle = peak_kb()  # the memory that the imports take, which is subtracted below
    sizes = {"src_vocab": spec["vocabulary"], "tgt_vocab": spec["vocabulary"], "shared_vocab": True}
    model = attach(MODELS[spec["model"].pop("name")](**spec["model"], **sizes, pad_id=PAD, seed=1))
    optim, how = Optim(), Search(length_factor=0, length_offset=spec["length"])
    adam = optim.build(model, fused=True)
    src, tgt = random_batch(spec["length"], spec["vocabulary"], spec["tokens"])

    def step() -> None:
        hidden, target = model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten()
        model.loss(hidden, target, optim.label_smoothing).smoothed.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()

    def burst(request: Answer) -> Answer:
        """Returns microseconds per target token in training and in decoding, and the peak memory of training in MiB."""
        training, memory = seconds_per_call(step, spec["burst"]), peak_kb() - idle
        with evaluating(model), packed(model):
            decoding = seconds_per_call(lambda: search(model, src, how, BOS, IMPOSSIBLE_ID), spec["burst"])
        return {"training": training / src.numel() * 1e6, "decoding": decoding / src.numel() * 1e6, "memory": memory / 1024}

    wire.answer(parameters=parameter_count(model))
    wire.serve(burst)


if __name__ == "__main__":
    main()
