"""Measures in trained Transformers what learners ask about attention.

    python scripts/answers.py PAIRS STUDIES CHECKPOINT ...    # STUDIES: all, or names such as heads,norms

PAIRS is a file with lines of source TAB target, and a CHECKPOINT a checkpoint or a run. With several, such as the seeds of one
model, the values are means, with their sample standard deviations.

Shapes: S source length, T target length, H heads, D model width, V vocabulary.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor, nn

from entente.attention.diagnose import diagnose
from entente.attention.hook_points import Hook
from entente.console import exit_codes, start_log
from entente.data.files import Columns, read_pairs
from entente.data.tokenizer import BOS, EOS
from entente.errors import InputError
from entente.models.attention import KV, AdditiveScore, DotProductScore, MultiHeadAttention
from entente.models.seq2seq import pad
from entente.models.transformer import EncoderBlock, Transformer
from entente.trained import TrainedModel, load

Pairs = list[tuple[str, str]]
Values = Iterator[tuple[str, float]]  # what was measured, and its value
SENTENCES, SEARCH_SENTENCES, ROWS, REPEATS = 100, 200, 32, 5
KINDS = {"encoder": "encoder.{}.attn", "decoder": "decoder.{}.attn", "cross": "decoder.{}.cross_attn"}


def heads(model: TrainedModel, pairs: Pairs) -> Values:
    """The distance between the maps of two heads of a layer: half the sum of |p - q| over the keys, from 0 (equal) to 1, as a
    mean over rows and pairs of heads."""
    for kind, place in KINDS.items():
        for layer in range(len(cast(Transformer, model.model).decoder)):
            distances = []
            for source, target in pairs[:SENTENCES]:
                _, cache = model.run_with_cache(source, target, f"{place.format(layer)}.hook_pattern")
                p = next(iter(cache.values()))[0]  # (H, T, S)
                apart = (p[:, None] - p[None]).abs().sum(-1).mean(-1) / 2  # (H, H)
                if n := len(p) - 1:
                    distances.append(apart.sum().item() / (len(p) * n))
            if distances:
                yield f"{kind} layer {layer + 1}", statistics.fmean(distances)


def steps(model: TrainedModel, pairs: Pairs) -> Values:
    """All target pieces in one pass, as in training, against one piece after another, as in decoding."""
    differences, pieces, seconds = [], 0, {"in parallel": 0.0, "step by step": 0.0}
    for src, tgt in _ids(model, pairs[:SENTENCES]):
        begin = time.perf_counter()
        parallel = model.model.output(model.model(src, tgt)).log_softmax(-1)  # (1, T, V)
        middle = time.perf_counter()
        state, rows = model.model.encode(src), []
        for t in range(tgt.size(1)):
            hidden, state = model.model.decode(tgt[:, t : t + 1], state)
            rows.append(model.model.output(hidden).log_softmax(-1))
        seconds["step by step"] += time.perf_counter() - middle
        seconds["in parallel"] += middle - begin
        differences.append((torch.cat(rows, 1) - parallel).abs().max().item())
        pieces += tgt.size(1)
    yield "largest difference of a log-probability", max(differences)
    for name, total in seconds.items():
        yield f"pieces per second {name}, one sentence at a time", pieces / total


def cache(model: TrainedModel, pairs: Pairs) -> Values:
    """Decoding 32 sentences with the keys and values of earlier pieces kept, against computing them again at each step."""
    src = pad([ids[0].tolist() for ids, _ in _ids(model, pairs[:ROWS])], model.model.pad_id)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(EOS + 1, len(model.vocabulary.tgt), (len(src), 50), generator=generator)
    start = model.model.encode(src)
    for length in (10, 20, 50):
        times: dict[bool, list[float]] = {True: [], False: []}
        for keeps in (True, False) * REPEATS:
            begin, state = time.perf_counter(), start
            for t in range(length):
                if keeps:
                    _, state = model.model.decode(ids[:, t : t + 1], state)
                else:
                    model.model.decode(ids[:, : t + 1], start)
            times[keeps].append(time.perf_counter() - begin)
        ratio = statistics.median(times[False]) / statistics.median(times[True])
        yield f"{length} pieces, time without a cache / with one", ratio


def positions(model: TrainedModel, pairs: Pairs) -> Values:
    """The share of the position vectors in the sum of the squared norms of words and positions, in the encoder's input."""
    transformer, places, words = cast(Transformer, model.model), 0.0, 0.0
    for src, _ in _ids(model, pairs[:SENTENCES]):
        places += transformer.position_vectors("src", 0, src.size(1)).square().sum().item()
        words += (transformer.src_embedding(src) * transformer.embedding_factor).square().sum().item()
    yield "share of positions in the sum of squared norms", places / (places + words)


def linear(model: TrainedModel, pairs: Pairs) -> Values:
    """|f(a + b) - f(a) - f(b)| / |f(a) + f(b)| of the first self-attention without its constant f(0), for the inputs a and b of
    two sentences: as a function of what the values are computed from, of what the keys are, and of the whole input."""
    block = cast(EncoderBlock, cast(Transformer, model.model).encoder[0])
    layer, inputs = block.self_attention, []
    for source, target in pairs[:SENTENCES]:
        [x] = model.run_with_cache(source, target, "encoder.0.hook_resid_pre")[1].values()
        inputs.append(block.before["self"](x))  # (1, S, D)
    lengths = [min(x.size(1), y.size(1)) for x, y in zip(inputs, inputs[1:], strict=False)]
    couples = [(x[:, :n], y[:, :n]) for x, y, n in zip(inputs, inputs[1:], lengths, strict=False)]
    for place in ("values", "keys", "whole input"):
        errors = []
        for a, b in couples:
            f = partial(_attend, layer, place, a)
            constant = f(torch.zeros_like(a))
            sum_of_both = f(a) + f(b) - 2 * constant
            errors.append(((f(a + b) - constant - sum_of_both).norm() / sum_of_both.norm()).item())
        yield f"relative error as a function of the {place}", statistics.fmean(errors)


def _attend(layer: MultiHeadAttention, place: str, a: Tensor, x: Tensor) -> Tensor:
    """Returns the layer's output for the input a (1, S, D), with x instead of it as the values, as the keys, or everywhere."""
    query, key, value = (x if place in (part, "whole input") else a for part in ("queries", "keys", "values"))
    return layer(query, KV(layer.project(key).key, layer.project(value).value), None)


def norms(model: TrainedModel, pairs: Pairs) -> Values:
    """The norm of a sublayer's output divided by that of its residual connection's input, and the cosine between the two."""
    sides = zip(*_ids(model, pairs[:SENTENCES]), strict=True)
    src, tgt = (pad([ids[0].tolist() for ids in side], model.model.pad_id) for side in sides)
    for name, value in diagnose(model.model, src, tgt).items():
        if name.startswith("update"):
            yield name.replace("update_", "").replace("/", ", "), value


def end(model: TrainedModel, pairs: Pairs) -> Values:
    """How much attention the source's end symbol gets, and how long its value vector is."""
    mass, length, share = [], [], []
    for source, target in pairs[:SENTENCES]:
        _, cache = model.run_with_cache(source, target, "decoder.*.cross_attn.hook_[pv]*")
        for i in range(len(cast(Transformer, model.model).decoder)):
            weights = cache[f"decoder.{i}.cross_attn.hook_pattern"][0]  # (H, T, S)
            norm = cache[f"decoder.{i}.cross_attn.hook_v"][0].norm(dim=-1).T  # (H, S)
            moved = weights * norm[:, None]
            mass.append(weights[..., -1].mean().item())
            length.append((norm[:, -1] / norm[:, :-1].mean(-1)).mean().item())
            share.append((moved[..., -1] / moved.sum(-1)).mean().item())
    yield "weight on </s> in cross-attention", statistics.fmean(mass)
    yield "norm of its value, relative to the others", statistics.fmean(length)
    yield "its share of weight times norm", statistics.fmean(share)


def beams(model: TrainedModel, pairs: Pairs) -> Values:
    """BLEU, length relative to the references', and empty translations, for beams from 1 to 50. With a length penalty of 0,
    hypotheses are ranked by their log-probabilities alone."""
    sources, references = (list(side) for side in zip(*pairs[:SEARCH_SENTENCES], strict=True))
    for beam, exponent in product((1, 2, 5, 10, 50), (1, 0)):
        translations = model.translate(sources, beam=beam, length_penalty=exponent)
        score, what = BLEU().corpus_score(translations, [references]), f"beam {beam}, length penalty {exponent}"
        yield f"{what}, BLEU", score.score
        yield f"{what}, length ratio", score.sys_len / score.ref_len
        yield f"{what}, empty", float(sum(not text for text in translations))


def repeats(model: TrainedModel, pairs: Pairs) -> Values:
    """The share of words in greedy translations that equal the word before them."""
    words = [text.split() for text in model.translate([source for source, _ in pairs[:SEARCH_SENTENCES]], beam=1)]
    repeated = sum(word == before for text in words for before, word in zip(text, text[1:], strict=False))
    yield "repeated words", repeated / max(1, sum(map(len, words)))


def mask(model: TrainedModel, pairs: Pairs) -> Values:
    """How far the predictions at earlier positions change (total variation distance) if the last piece that the decoder reads
    is replaced by the first one, with the look-ahead mask lifted in the self-attention of one layer only, or of none."""
    scores: list[Tensor] = []

    def keep(value: Tensor, _: Hook) -> None:
        scores[:] = [value]

    def lift(_: Tensor, __: Hook) -> Tensor:
        return scores[0].softmax(-1)

    for layer in range(-1, len(cast(Transformer, model.model).decoder)):
        hooks = [("attn_scores", keep), ("pattern", lift)] if layer >= 0 else []
        with model.hooks([(f"decoder.{layer}.attn.hook_{point}", function) for point, function in hooks]):
            changes = []
            for src, tgt in _ids(model, pairs[:SENTENCES]):
                replaced = torch.cat([tgt[:, :-1], tgt[:, 1:2]], dim=1)  # the first piece follows BOS
                p, q = (model.model.output(model.model(src, ids)).softmax(-1)[0, :-1] for ids in (tgt, replaced))  # (T - 1, V)
                changes.append((p - q).abs().sum(-1).mean().item() / 2)
        place = f"layer {layer + 1}" if hooks else "no layer"
        yield f"change of earlier predictions, mask lifted in {place}", statistics.fmean(changes)


@torch.inference_mode(mode=False)
def speed(model: TrainedModel, pairs: Pairs) -> Values:
    """The time of additive scores divided by that of dot products, forward and backward, for as many heads of the same width as
    the model's, and 32 sentences with the same number of pieces on both sides."""
    layer = cast(MultiHeadAttention, cast(Transformer, model.model).encoder[0].self_attention)
    scores: dict[str, nn.Module] = {"dot": DotProductScore("d_k"), "additive": AdditiveScore(layer.n_heads, layer.d_k)}
    for parameter in scores["additive"].parameters():
        nn.init.normal_(parameter)
    for length in (10, 20, 50):
        query, key = (torch.randn(ROWS, layer.n_heads, length, layer.d_k, requires_grad=True) for _ in range(2))
        times: dict[str, list[float]] = {name: [] for name in scores}
        for name in [*scores] * REPEATS:
            begin = time.perf_counter()
            for _ in range(REPEATS):
                torch.autograd.grad(scores[name](query, key, None).sum(), (query, key))
            times[name].append(time.perf_counter() - begin)
        ratio = statistics.median(times["additive"]) / statistics.median(times["dot"])
        yield f"{length} pieces, time of additive scores / dot products", ratio


STUDIES: dict[str, Callable[[TrainedModel, Pairs], Values]] = {
    study.__name__: study for study in (heads, steps, cache, positions, linear, norms, end, beams, repeats, mask, speed)
}


def _ids(model: TrainedModel, pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
    """Returns the source (1, S) with its end symbol and the decoder's input (1, T) of each pair."""
    src = model.vocabulary.encode_src([source for source, _ in pairs])
    tgt = [model.vocabulary.tgt.encode(target) for _, target in pairs]
    return [(torch.tensor([s]), torch.tensor([[BOS, *t]])) for s, t in zip(src, tgt, strict=True)]


@torch.inference_mode()
def main(file: str, studies: str, *checkpoints: str) -> None:
    names = [*STUDIES] if studies == "all" else studies.split(",")
    if mistakes := [name for name in names if name not in STUDIES]:
        raise InputError(f"{', '.join(mistakes)}: no such study; give all, or some of {','.join(STUDIES)}")
    pairs = [(src, tgt) for _, src, tgt in read_pairs(Path(file), Columns(("fr", "en"), (1, 2))) if src and tgt]
    if len(pairs) < 2:
        raise InputError(f"{file}: give at least two pairs")
    models = [load(checkpoint, "cpu") for checkpoint in checkpoints]
    for checkpoint, model in zip(checkpoints, models, strict=True):
        if not isinstance(model.model, Transformer):
            raise InputError(f"{checkpoint}: is not a Transformer")
        model.model.eval()
    for name in names:
        for rows in zip(*(STUDIES[name](model, pairs) for model in models), strict=True):
            what, values = rows[0][0], [value for _, value in rows]
            spread = f" ± {statistics.stdev(values):,.2g}" if len(values) > 1 else ""
            print(f"| {name} | {what} | {statistics.fmean(values):,.4g}{spread} |", flush=True)


if __name__ == "__main__":
    with exit_codes():
        start_log(to_stderr=True)
        if len(sys.argv) < 4:
            raise InputError("give PAIRS STUDIES CHECKPOINT ...: a file of pairs, studies (or all), and checkpoints")
        main(*sys.argv[1:])
