"""Trains Transformers without residual connections that are repaired in one way each, to find out what the residual is for.

    python scripts/residual.py train REPAIR SEED STEPS OVERRIDES ...    # outputs/residual/REPAIR-STEPS-seedSEED; resumes it too
    python scripts/residual.py report FOLDER                            # prints a table, and draws FOLDER/curves.png

`report` adds the finished runs in outputs/residual to FOLDER/runs.jsonl.xz, and reports all runs that this file has.

Two explanations of why a Transformer without residual connections learns nothing:

    collapse    attention averages, so the vectors of a sentence become alike, layer by layer (Dong et al. 2021, for attention
                alone), and the gradients of queries and keys vanish (Noci et al. 2022). Then it helps to condition the layers
                better: other initial values, another optimiser, a longer warm-up.
    query lost  the output of cross-attention is a mean of source vectors. What the decoder has written so far, which chose the
                weights, is not in it. Then nothing helps except carrying the query past cross-attention.

What either predicts for each repair (REPAIRS, below) was written down before its runs. The repairs:

    none           nothing: `ablation=no_residual`
    muon           the recipe of `make train`, with 3 layers: Muon, cosine scores, no dropout, another schedule
    warm_up        a warm-up three times as long, so the decay starts at step 600
    conditioned    W_v, W_o and feed-forward matrices start orthogonal, and self-attention starts sharp: each position attends
                   to itself (after He et al. 2023, who add an identity to the attention weights instead)
    concatenated   after cross-attention, W [x; c] takes the place of x + c, as in the readout of Bahdanau et al. 2015
    merged         one softmax over target and source keys takes the place of self- and cross-attention; a position's weight
                   on itself carries its query on
    both           `conditioned` and `concatenated`
    rotated        `conditioned`, and feed-forward networks start linear, as the identity (after Balduzzi et al. 2017)
    turned         `concatenated`, and W [x; c] starts as the sum of a rotation of x and one of c
    unturned       `rotated` and `concatenated`
    isometric      `rotated` and `turned`
    encoder        `concatenated`, and `rotated` in the encoder only; decoder: in the decoder only

Shapes: B batch, T target length, P earlier target tokens, S source length, D model width, H heads, K key width.
"""

import json
import lzma
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from entente.ablation.comparison import measured
from entente.ablation.runs import Run, read_run
from entente.ablation.significance import NOTHING
from entente.attention.record import capture
from entente.commands.train import train
from entente.console import Task, exit_codes, start_log
from entente.errors import InputError
from entente.files import open_atomic, read_file
from entente.models import build
from entente.models.attention import KV, AttentionWeights
from entente.models.initialise import generator_of, initialise
from entente.models.seq2seq import Residual, Sizes
from entente.models.transformer import DecoderBlock, EncoderBlock, Transformer
from entente.settings import TransformerSettings
from entente.trained import TrainedModel, load

FOLDER = Path("outputs/residual")
ADAM = ["experiment=ablation_baseline"]
FAILS, LEARNS = "fails", "learns"


class Repair(NamedTuple):
    """What a repair should do if representations collapse, and if the query is lost; its changes of the model; the half whose
    initial values it changes, if it is one; its settings."""

    collapse: str
    query_lost: str
    changes: tuple[str, ...] = ()
    half: str = ""
    overrides: Sequence[str] = ADAM


REPAIRS = {
    "none": Repair(FAILS, FAILS),
    "muon": Repair(LEARNS, FAILS, overrides=["model.n_layers=3"]),  # the recipe itself has 2
    "warm_up": Repair(LEARNS, FAILS, overrides=[*ADAM, "optim.warmup=600", "optim.decay_from=600"]),
    "conditioned": Repair(LEARNS, FAILS, ("conditioned",)),
    "rotated": Repair(LEARNS, FAILS, ("conditioned", "rotated")),
    "concatenated": Repair(FAILS, LEARNS, ("concatenated",)),
    "merged": Repair(FAILS, LEARNS, ("merged",)),
    "both": Repair(LEARNS, LEARNS, ("concatenated", "conditioned")),
    "turned": Repair(FAILS, LEARNS, ("concatenated", "turned")),
    "unturned": Repair(LEARNS, LEARNS, ("concatenated", "conditioned", "rotated")),
    "isometric": Repair(LEARNS, LEARNS, ("concatenated", "conditioned", "rotated", "turned")),
    "encoder": Repair(FAILS, LEARNS, ("concatenated", "conditioned", "rotated"), half="encoder"),
    "decoder": Repair(FAILS, LEARNS, ("concatenated", "conditioned", "rotated"), half="decoder"),
}
ATTENTIONS = (r"encoder \d+ self", r"decoder \d+ self", r"decoder \d+ cross")
SHARP = 2.0  # factor of W_q = W_k, so that the score of a position with itself is about 20 and that with others about 0


class Concatenation(Residual):
    """Returns W [x; dropout(c)] (B, T, D) for the query's vector x and the sublayer's output c (B, T, D)."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(keep=False, dropout=dropout)
        self.linear = nn.Linear(2 * d_model, d_model)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        return self.linear(torch.cat([x, self.dropout(sublayer_output)], dim=-1))


class MergedBlock(DecoderBlock):
    """A decoder block with one attention to the target so far and to the source (after T5Gemma 2, arXiv 2512.14856), with the
    projections of self-attention for both."""

    def project(self, memory: Tensor) -> KV:
        return self.self_attention.project(memory)

    def forward(self, x: Tensor, past: KV, source: KV, causal: Tensor | None, src_mask: Tensor | None) -> tuple[Tensor, KV]:
        h = self.before["self"](x)
        extended = past.extend(self.self_attention.project(h, start=past.key.size(-2)))  # (B, H, P + T, K)
        beams = len(x) // len(source.key)
        repeated = KV(*(part.repeat_interleave(beams, 0) for part in source))  # (B, H, S, K)
        written = x.new_ones(x.size(1), extended.key.size(-2), dtype=torch.bool) if causal is None else causal
        read = x.new_ones(1, 1, 1, source.key.size(-2), dtype=torch.bool) if src_mask is None else src_mask
        read = read.expand(len(source.key), 1, x.size(1), -1).repeat_interleave(beams, 0)
        mask = torch.cat([written.expand(len(x), 1, -1, -1), read], dim=-1)  # (B, 1, T, P + T + S)
        output = self.self_attention(h, extended.extend(repeated), mask)
        x = self.after["self"](self.residual["self"](x, output))
        return self.sublayer("ff", x, lambda h: self.ff(h)), extended


class Repaired(Transformer):
    """A Transformer with the changes of a repair. Parameters that it shares with the Transformer start with its values, except
    for those that `condition` and `rotate` draw anew."""

    def __init__(self, repair: Repair, sizes: Sizes, settings: TransformerSettings) -> None:
        super().__init__(sizes, settings)
        for block in self.decoder:
            if "concatenated" in repair.changes:
                cast(DecoderBlock, block).residual["cross"] = Concatenation(self.d_model, settings.dropout)
            if "merged" in repair.changes:
                merge(cast(DecoderBlock, block))
        initialise(self, sizes.seed, embedding_std=(2 * self.d_model) ** -0.5)
        if "conditioned" in repair.changes:
            condition(self, sizes.seed, repair.half)
        rotate(self, sizes.seed, repair)


def merge(block: DecoderBlock) -> None:
    block.__class__ = MergedBlock
    del block.cross_attention
    for parts in (block.before, block.after, block.residual):
        del parts["cross"]
    block.present = tuple(name for name in block.present if name != "cross")


def condition(model: Transformer, seed: int, half: str) -> None:
    """Makes W_v, W_o and the feed-forward matrices orthogonal, and W_q = W_k orthogonal in self-attention, times SHARP. half:
    `encoder` or `decoder`, or an empty string for both."""
    gains = {"value": 1.0, "out": 1.0, "ff.0": math.sqrt(2), "ff.2": 1.0}  # a ReLU halves the mean square
    for path, module in model.named_modules():
        gain = next((gain for name, gain in gains.items() if path.endswith(f".{name}")), None)
        if path.endswith("self_attention.query"):
            gain = SHARP
        if gain and path.startswith(half) and isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, gain=gain, generator=generator_of(seed, f"orthogonal/{path}"))
    for path, module in model.named_modules():
        if path.startswith(half) and isinstance(module, DecoderBlock | EncoderBlock):
            attention = module.self_attention
            attention.key.load_state_dict(attention.query.state_dict())


def rotate(model: Transformer, seed: int, repair: Repair) -> None:
    """For `rotated`, makes each feed-forward network, of one half or of both, V' (relu(V x) - relu(-V x)) = V' V x = x, with
    orthonormal columns in V. For `turned`, makes each concatenation Q x + R c, with rotations Q and R."""

    def orthonormal(rows: int, path: str) -> Tensor:
        return nn.init.orthogonal_(torch.empty(rows, model.d_model), generator=generator_of(seed, f"rotation/{path}"))

    is_rotated = "rotated" in repair.changes
    with torch.no_grad():
        for path, module in model.named_modules():
            if "turned" in repair.changes and isinstance(module, Concatenation):
                rotations = [orthonormal(model.d_model, f"{path}/{part}") for part in ("x", "c")]
                module.linear.weight.copy_(torch.cat(rotations, dim=1))
            elif is_rotated and path.startswith(repair.half) and isinstance(module, DecoderBlock | EncoderBlock):
                first, _, second = cast(tuple[nn.Linear, nn.Module, nn.Linear], (*module.ff,))
                columns = orthonormal(first.out_features // 2, path)
                weight = nn.functional.pad(torch.cat([columns, -columns]), (0, 0, 0, first.out_features % 2))
                first.weight.copy_(weight)
                second.weight.copy_(weight.T)


def use(repair: str) -> None:
    """Makes `build`, and so training and loading, return the repaired model."""
    build.MODELS["transformer"] = partial(Repaired, REPAIRS[repair])


@torch.no_grad()
def probe(model: TrainedModel, run: Run) -> dict[str, list[float]]:
    """Returns two numbers for each decoder block, on the validation references. last_word: the share of positions at which a
    linear probe tells, from the block's output, the piece that the decoder has just read (ridge regression to one-hot vectors,
    fitted on half the sentences). own_weight: the mean weight of a position on itself in self-attention or, in `merged`, in the
    attention to both texts; without first positions, which see nothing else in self-attention."""
    texts, vocabulary, transformer = run.translations("valid"), model.vocabulary, cast(Transformer, model.model)
    states: defaultdict[int, list[Tensor]] = defaultdict(list)
    own: defaultdict[int, list[Tensor]] = defaultdict(list)
    src, tgt = vocabulary.encode_src(texts["source"]), vocabulary.encode_tgt(texts["reference"])
    read = [torch.tensor(ids[:-1]) for ids in tgt]
    for source, target in zip(src, read, strict=True):
        calls = capture(transformer, torch.tensor([source]), target[None], DecoderBlock | AttentionWeights)
        for i in range(len(transformer.decoder)):
            states[i].append(calls[f"decoder.{i}"][0].output[0].squeeze(0))  # (T, D)
            weights = calls[f"decoder.{i}.self_attention.weights"][0].output  # (1, H, T, T or T + S)
            own[i].append(weights.diagonal(dim1=-2, dim2=-1)[..., 1:].flatten())
    half = len(read) // 2
    labels, tested = torch.cat(read[:half]), torch.cat(read[half:])
    shares = []
    for vectors in states.values():
        x, y = torch.cat(vectors[:half]).double(), nn.functional.one_hot(labels, len(vocabulary.tgt)).double()
        x, z = (nn.functional.pad(each, (0, 1), value=1.0) for each in (x, torch.cat(vectors[half:]).double()))
        weights = torch.linalg.solve(x.T @ x + 1e-3 * len(x) * torch.eye(x.size(1)), x.T @ y)
        shares.append((z @ weights).argmax(-1).eq(tested).double().mean().item())
    return {"last_word": shares, "own_weight": [torch.cat(parts).mean().item() for parts in own.values()]}


def result(repair: str, steps: int, run: Run) -> dict[str, Any]:
    """Returns what is published of a finished run."""
    last = {(name, place): points[-1][1] for name, place, points in measured(run)}
    norms = [value for (name, _), value in last.items() if name == "gradient norm" and math.isfinite(value)]
    layers = run.config["model"]["n_layers"]
    use(repair)
    return {
        **key_of(repair, steps, run),
        "commit": run.training.get("commit"),
        "test_bleu": run.metrics["test"]["bleu"],
        "gradient_ratio": max(min(norms), 1e-30) / max(norms),  # squares of smaller float32 norms are 0
        "cosines": [last["position cosine", f"{side} {layers} ff"] for side in ("encoder", "decoder")],
        "entropy": entropies(last),
        **probe(load(run.directory, "cpu"), run),
        "curve": run.history["valid/nll"],
    }


def entropies(last: dict[tuple[str, str], float]) -> list[float]:
    """Returns the mean entropy of attention (1: uniform weights) over the layers of each kind that the model has."""
    places = {place: value for (name, place), value in last.items() if name == "attention entropy"}
    kinds = ([value for place, value in places.items() if re.fullmatch(kind, place)] for kind in ATTENTIONS)
    return [statistics.fmean(values) for values in kinds if values]


def key_of(repair: str, steps: int, run: Run) -> dict[str, Any]:
    return {"repair": repair, "steps": steps, "seed": run.seed, "layers": run.config["model"]["n_layers"]}


def collect(runs: Path, file: Path) -> list[dict[str, Any]]:
    """Adds the finished runs to a file of results, and returns all of them."""
    rows = [json.loads(line) for line in read_file(file, lzma.decompress).splitlines()] if file.exists() else []
    for path in sorted(runs.glob("*/metrics.json")):
        name = re.fullmatch(r"([a-z_]+)-(\d+)-seed\d+", path.parent.name)
        if not name or name[1] not in REPAIRS:
            raise InputError(f"{path.parent}: not a run of this study, since its name is not REPAIR-STEPS-seedSEED")
        run, steps = read_run(path.parent), int(name[2])
        key = key_of(name[1], steps, run)
        if not any(key.items() <= row.items() for row in rows):
            with Task(f"reading {path.parent}"):
                rows.append(result(name[1], steps, run))
    if not rows:
        raise InputError(f"{runs}: has no finished run, and {file} has none either; train some first")
    rows.sort(key=lambda row: (row["layers"], row["steps"], [*REPAIRS].index(row["repair"]), row["seed"]))
    with open_atomic(file) as archive:
        archive.write(lzma.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the predictions and the outcome ("fails": mean BLEU is below NOTHING), the mean and deviation over seeds of the
    best BLEU, and means of what was measured at the end (of the ratios of gradients, the geometric mean). The columns from
    `cosines` on have a number for each half, each kind of attention in ATTENTIONS, and each decoder block (twice)."""
    columns = ["layers", "steps", "repair", "collapse", "query lost", "outcome", "seeds", "test BLEU", "valid NLL", "gradients"]
    columns += ["cosines", "entropy", "own weight", "last word read"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for (layers, steps, repair), members in groupby(rows, key=itemgetter("layers", "steps", "repair")):
        group = [*members]
        bleu, ratio = ([row[name] for row in group] for name in ("test_bleu", "gradient_ratio"))
        nll = [row["curve"][-1][1] for row in group]
        spread = f" ± {statistics.stdev(bleu):.2f}" if len(bleu) > 1 else ""
        scores = f"{statistics.fmean(bleu):.2f}{spread} | {statistics.fmean(nll):.3f}"
        measures = [f"{statistics.geometric_mean(ratio):.1e}"]
        for name in ("cosines", "entropy", "own_weight", "last_word"):
            values = zip(*(row[name] for row in group if name in row), strict=True)
            measures.append(" ".join(f"{statistics.fmean(each):.2f}" for each in values) or "–")
        outcome = LEARNS if statistics.fmean(bleu) >= NOTHING else FAILS
        outcomes = f"{REPAIRS[repair].collapse} | {REPAIRS[repair].query_lost} | {outcome}"
        lines.append(f"| {layers} | {steps:,} | `{repair}` | {outcomes} | {len(group)} | {scores} | {' | '.join(measures)} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draws the validation NLL against steps, a line for each run: a panel for each number of layers and steps."""
    panels = [(key, [*group]) for key, group in groupby(rows, key=itemgetter("layers", "steps"))]
    figure = Figure(figsize=(5 * len(panels) + 1.2, 4), layout="constrained")
    lines, places = {}, figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, ((layers, steps), group) in zip(places, panels, strict=True):
        for row in group:
            number = [*REPAIRS].index(row["repair"])
            style = {"color": f"C{number % 7}", "linestyle": ("-", "--")[number // 7], "linewidth": 1.2}
            [lines[row["repair"]]] = axes.plot(*zip(*row["curve"], strict=True), **style)
        axes.set(title=f"{layers} + {layers} layers, {steps:,} steps", xlabel="step", ylabel="validation NLL")
        axes.spines[["top", "right"]].set_visible(False)
    places[0].set_ylim(bottom=0)  # now that all lines are drawn, since it fixes the top too
    names = [repair for repair in REPAIRS if repair in lines]
    figure.legend([lines[name] for name in names], names, loc="outside right center", frameon=False)
    return figure


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) > 4 and sys.argv[1] == "train" and sys.argv[2] in REPAIRS:
            repair, seed, steps, *overrides = sys.argv[2:]
            use(repair)
            name = f"{FOLDER.name}/{repair}-{steps}-seed{seed}"  # for other layers, run it in another folder
            run = [f"name={name}", f"seed={seed}", f"trainer.max_steps={steps}", "resume=auto"]
            train(["model.residual=[]", *REPAIRS[repair].overrides, *run, *overrides])
        elif len(sys.argv) == 3 and sys.argv[1] == "report":
            folder = Path(sys.argv[2])
            folder.mkdir(parents=True, exist_ok=True)
            results = collect(FOLDER, folder / "runs.jsonl.xz")
            draw(results).savefig(folder / "curves.png", dpi=110)
            print(table(results))
        else:
            raise InputError(f"give `report FOLDER`, or `train REPAIR SEED STEPS`, with a repair of {', '.join(REPAIRS)}")
