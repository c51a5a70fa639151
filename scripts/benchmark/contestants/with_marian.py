# mypy: ignore-errors
"""Trains Hugging Face's MarianMTModel in a plain loop such as a user would write, or decodes with its method `generate`."""

import importlib
import sys
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import torch
from torch.profiler import record_function

from benchmark.batches import endless_batches, read_batches, target_tokens
from benchmark.parts import BATCH_EVENT, Profile, synchronise
from benchmark.wire import Wire

transformers = importlib.import_module("transformers")  # by name, so that type checkers skip the package

PAD, BOS, EOS = 0, 2, 3


def build(spec):
    model, size = spec["model"], spec["vocabulary"]
    torch.manual_seed(spec["seed"])
    return transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=size,
            d_model=model["d_model"],
            encoder_layers=model["n_layers"],
            decoder_layers=model["n_layers"],
            encoder_attention_heads=model["n_heads"],
            decoder_attention_heads=model["n_heads"],
            encoder_ffn_dim=model["d_ff"],
            decoder_ffn_dim=model["d_ff"],
            dropout=model["dropout"],
            attention_dropout=model["attention_dropout"],
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            max_position_embeddings=spec["longest"],
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


def training(spec, model, device):
    optim = spec["optim"]
    betas = (optim["beta1"], optim["beta2"])
    adam = torch.optim.AdamW(model.parameters(), optim["lr"], betas, eps=1e-9, weight_decay=0.0, fused=True)
    mixed = {"bf16-mixed": torch.bfloat16}.get(spec["precision"])
    batches = endless_batches(spec["batches"])

    def step(src, tgt):
        src, tgt = torch.from_numpy(src).to(device), torch.from_numpy(tgt).to(device)
        with torch.autocast(device.type, mixed) if mixed else nullcontext():
            logits = model(input_ids=src, attention_mask=src.ne(PAD), decoder_input_ids=tgt[:, :-1]).logits
            target = tgt[:, 1:].masked_fill(tgt[:, 1:] == PAD, -100)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), target.flatten(), label_smoothing=optim["label_smoothing"]
            )
        loss.backward()
        if spec["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip"])
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
                tokens += target_tokens(tgt)
            synchronise(device.type)
            seconds = time.perf_counter() - started
        return {"seconds": seconds, "tokens": tokens, **({"parts": profile.parts(seconds)} if profile else {})}

    model.train()
    return burst


def decoding(spec, model, device):
    """Returns the function that runs a burst, which decodes exactly `length` tokens per sentence."""
    model.eval()
    batches = [torch.from_numpy(src).to(device) for src, _ in read_batches(spec["batches"])]
    length = {"min_new_tokens": spec["length"], "max_new_tokens": spec["length"]}

    @torch.inference_mode()
    def burst(request):
        started, sentences = time.perf_counter(), 0
        for src in batches:
            found = model.generate(input_ids=src, attention_mask=src.ne(PAD), num_beams=spec["beam"], do_sample=False, **length)
            sentences += len(src)
            assert found.size(1) == spec["length"] + 1
        synchronise(device.type)
        return {"seconds": time.perf_counter() - started, "sentences": sentences}

    return burst


def main():
    wire = Wire()
    spec = wire.settings
    torch.set_num_threads(spec["threads"])
    device = torch.device(spec["device"])
    model = build(spec).to(device)
    burst = (training if spec["task"] == "train" else decoding)(spec, model, device)
    about = {"version": transformers.__version__, "torch": torch.__version__}
    wire.answer(**about, parameters=sum(p.numel() for p in model.parameters()))
    wire.serve(burst)


if __name__ == "__main__":
    main()
