# mypy: ignore-errors
"""Trains Hugging Face's MarianMTModel in a plain loop such as a user would write, or decodes with its method `generate`."""

import time
from contextlib import nullcontext
from itertools import cycle

import torch
import transformers
from torch.profiler import record_function

from benchmark.parts import BATCH_EVENT, Profile, synchronise
from benchmark.wire import PAD, Wire


def build(spec):
    torch.manual_seed(spec["config"]["seed"])
    sizes = {"vocab_size": spec["vocabulary"], "max_position_embeddings": spec["longest"]}
    return transformers.MarianMTModel(transformers.MarianConfig(**spec["template"], **sizes))


def training(spec, model, device):
    optim, dtype = spec["config"]["optim"], getattr(torch, spec["dtype"])
    clip = spec["config"]["trainer"]["gradient_clip"]
    betas = (optim["beta1"], optim["beta2"])
    adam = torch.optim.AdamW(model.parameters(), optim["lr"], betas, eps=1e-9, weight_decay=0.0, fused=True)
    batches = cycle([(torch.tensor(src), torch.tensor(tgt)) for src, tgt in spec["batches"]])

    def step(src, tgt):
        src, tgt = src.to(device), tgt.to(device)
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            logits = model(input_ids=src, attention_mask=src.ne(PAD), decoder_input_ids=tgt[:, :-1]).logits
            target = tgt[:, 1:].masked_fill(tgt[:, 1:] == PAD, -100)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), target.flatten(), label_smoothing=optim["label_smoothing"]
            )
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        adam.step()
        adam.zero_grad(set_to_none=True)

    def burst(request):
        profile = Profile(device.type, model) if request.get("profile") else None
        tokens, started = 0, time.perf_counter()
        with profile or nullcontext():
            for _ in range(request["steps"]):
                with record_function(BATCH_EVENT):
                    src, tgt = next(batches)
                step(src, tgt)
                tokens += int(tgt[:, 1:].ne(PAD).sum())
            synchronise(device.type)
            seconds = time.perf_counter() - started
        return {"seconds": seconds, "tokens": tokens, **({"parts": profile.parts(seconds)} if profile else {})}

    model.train()
    return burst


def decoding(spec, model, device):
    """Returns the function that runs a burst, which decodes exactly `length` tokens per sentence."""
    model.eval()
    batches = [torch.tensor(src, device=device) for src in spec["batches"]]
    options = {"num_beams": spec["beam"], "min_new_tokens": spec["length"], "max_new_tokens": spec["length"]}

    @torch.inference_mode()
    def burst(request):
        started = time.perf_counter()
        for src in batches:
            ids = model.generate(input_ids=src, attention_mask=src.ne(PAD), do_sample=False, **options)
            assert ids.size(1) == spec["length"] + 1
        synchronise(device.type)
        return {"seconds": time.perf_counter() - started, "sentences": sum(map(len, batches))}

    return burst


def main():
    wire = Wire()
    spec = wire.settings
    device = torch.device(spec["device"])
    model = build(spec).to(device)
    task = {"train": training, "decode": decoding}[spec["task"]]
    about = {"version": transformers.__version__, "torch": torch.__version__, "parameters": model.num_parameters()}
    wire.serve(task(spec, model, device), **about)


if __name__ == "__main__":
    main()
