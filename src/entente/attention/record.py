"""Uses hooks to record the module calls and the attention maps of one teacher-forced pass through a model.

Attention maps are the outputs of AttentionWeights modules, in evaluation mode and before dropout. Recording draws no random
numbers and leaves no flag, attribute or hook in the model.

Shapes: B or N sentences, S source length, T target length (both include the end symbol), L layers, H heads.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from entente.checkpoint import TrainedRun
from entente.data.text import clean
from entente.data.tokenizer import BOS, EOS, Vocabulary
from entente.decoding.search import greedy
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.models.attention import AttentionWeights
from entente.models.seq2seq import Seq2Seq, evaluating, pad

ENCODER, DECODER, CROSS, ALIGNMENT = "encoder self-attention", "decoder masked self-attention", "cross-attention", "alignment"
TO_SOURCE = (CROSS, ALIGNMENT)
KIND_NAMES = {"encoder": ENCODER, "decoder": DECODER, "cross": CROSS, "alignment": ALIGNMENT}  # names used by commands
NAME_OF_KIND = {kind: name for name, kind in KIND_NAMES.items()}
Side = Literal["source", "produced", "read"]
EPSILON = 1e-12  # lower bound of divisors, so that a row of zeros gives no NaN


class Operation(NamedTuple):
    """One call of a torch function or operator, named without underscores at its ends: "matmul", not "__matmul__"."""

    name: str
    inputs: tuple[Any, ...]
    output: Any


class Call(NamedTuple):
    """One call of a module. operations: the torch functions called outside captured submodules; empty unless requested."""

    module: Any
    inputs: tuple[Any, ...]
    output: Any
    operations: list[Operation]


class _Operations(TorchFunctionMode):
    """Appends each torch operation to the last list in `running`, which belongs to the innermost captured module."""

    def __init__(self, running: list[list[Operation]]) -> None:
        super().__init__()
        self._running = running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self._running:
            self._running[-1].append(Operation(getattr(func, "__name__", "").strip("_"), args, output))
        return output


@contextmanager
def observing(model: Seq2Seq) -> Iterator[torch.device]:
    """Yields the model's device, with the model in evaluation mode, without gradients and autocast inside the context."""
    device = model.output.weight.device
    # In a training step, autocast would cache the weights that it casts here, without gradients, and reuse them for the loss.
    with evaluating(model), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield device


def capture(model: Seq2Seq, src: Tensor, tgt: Tensor, kind: Any = nn.Module, operations: bool = False) -> dict[str, list[Call]]:
    """Runs the model on src (B, S) and the decoder input tgt (B, T). Returns the calls of each module of a class, or of a union
    of classes, by path. operations: whether to record the torch functions that the modules call."""
    paths = {module: path for path, module in model.named_modules() if isinstance(module, kind)}
    calls: dict[str, list[Call]] = {path: [] for path in paths.values()}
    running: list[list[Operation]] = []  # one list per captured module being called, innermost last

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        calls[paths[module]].append(Call(module, inputs, output, running.pop()))

    with ExitStack() as stack:
        device = stack.enter_context(observing(model))
        for module in paths:
            stack.enter_context(module.register_forward_pre_hook(lambda module, inputs: running.append([])))
            stack.enter_context(module.register_forward_hook(leave))
        if operations:
            stack.enter_context(_Operations(running))
        model.decode(tgt.to(device), model.encode(src.to(device)))
    return calls


class AttentionMap(NamedTuple):
    """The weights of one kind of attention for one sentence, without padding. Rows are queries and columns are keys. In the
    decoder, rows are labelled with the piece that their step *produces* (y1 .. yn, </s>), and the columns of self-attention
    with the pieces *read* (<s>, y1 .. yn). All other labels are the pieces of the source, </s> included."""

    kind: str
    weights: Tensor  # (L, H, rows, columns), float32 on the CPU
    rows: list[str]
    columns: list[str]
    unit: str = "piece"  # what each row or column stands for: "piece" or "word"
    allowed: Tensor | None = None  # (rows, columns), True for the keys that a row may attend to; None means all
    as_decoded: bool = True  # False if rows depend on later target pieces, which are unknown when decoding


def has_attention(model: nn.Module) -> bool:
    """Returns whether a model has attention. A BiRNN with score=none has none."""
    return any(isinstance(module, AttentionWeights) for module in model.modules())


def read_sentence(run: TrainedRun, source: str, target: str | None) -> tuple[list[int], list[int]]:
    """Returns what `read_pair` does. The default target is the model's greedy translation."""
    src, tgt = read_pair(run.vocabulary, source, target or "")
    if target is None:
        tgt = translate(run.model, run.vocabulary, [source], greedy(run.settings.search))[0][0].tokens
    return src, tgt


def read_pair(vocabulary: Vocabulary, source: str, target: str) -> tuple[list[int], list[int]]:
    """Returns the source ids with EOS, and the target ids without BOS and EOS. Raises InputError if the source is empty, or if
    one of the two is too long."""
    source, target = clean(source), clean(target)
    if not source:
        raise InputError("the sentence is empty: give one")
    vocabulary.src.refuse_too_long(source, "sentence")
    vocabulary.tgt.refuse_too_long(target, "target")
    return vocabulary.encode_src([source])[0], vocabulary.tgt.encode(target)


def target_log_probabilities(model: Seq2Seq, src: Sequence[int], tgt: Sequence[int]) -> Tensor:
    """Returns the log-probabilities (T, V) of each piece after BOS and the pieces of tgt before it. src ends with EOS."""
    with observing(model) as device:
        hidden = model(torch.tensor([[*src]], device=device), torch.tensor([[BOS, *tgt]], device=device))[0]  # (T, D)
        return model.output(hidden).float().log_softmax(-1)


def record(model: Seq2Seq, vocabulary: Vocabulary, src: Sequence[int], tgt: Sequence[int]) -> list[AttentionMap]:
    """Returns the maps of one sentence pair, one per kind of attention. src ends with EOS; tgt has neither BOS nor EOS."""
    [maps] = record_batch(model, vocabulary, [src], [tgt])
    half = (len(tgt) + 2) // 2
    with observing(model) as device:
        source, read = torch.tensor([[*src]], device=device), torch.tensor([[BOS, *tgt]], device=device)
        full, part = model(source, read)[:, :half], model(source, read[:, :half])
    is_causal = torch.allclose(full, part, rtol=1e-3, atol=1e-4)  # the decoder's output ignores later target pieces
    return [map._replace(as_decoded=is_causal or map.kind == ENCODER) for map in maps]


def record_batch(
    model: Seq2Seq, vocabulary: Vocabulary, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]
) -> list[list[AttentionMap]]:
    """Returns the maps of each sentence pair, recorded in one pass."""
    sources, targets = pad(src, model.pad_id), pad([[BOS, *ids] for ids in tgt], model.pad_id)
    calls = capture(model, sources, targets, AttentionWeights)
    labels: dict[Side, list[list[str]]] = {
        "source": [vocabulary.src.pieces(ids) for ids in src],
        "produced": [vocabulary.tgt.pieces([*ids, EOS]) for ids in tgt],
        "read": [vocabulary.tgt.pieces([BOS, *ids]) for ids in tgt],
    }
    layers: defaultdict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for path, calls_of_module in calls.items():
        weights, allowed = weights_of(calls_of_module)
        layers[KIND_NAMES[kind_of(path)]].append((weights.float().cpu(), allowed.any(1).cpu()))
    maps: list[list[AttentionMap]] = [[] for _ in src]
    for kind, stack in layers.items():
        weights = torch.stack([weights for weights, _ in stack], dim=1)  # (N, L, H, T, S)
        allowed = torch.stack([allowed for _, allowed in stack]).any(0)  # (N, T, S)
        for n, (rows, columns) in enumerate(zip(*(labels[side] for side in sides_of(kind)), strict=True)):
            real = (..., slice(len(rows)), slice(len(columns)))
            maps[n].append(AttentionMap(kind, weights[n][real].clone(), rows, columns, allowed=allowed[n][real].clone()))
    return maps


def entropy_share(weights: Tensor, allowed: Tensor) -> Tensor:
    """Returns the entropy of each row (..., S), divided by that of a uniform row over its allowed keys; 0 for a row with fewer
    than two. Rows are normalised first, since in some ablations they do not sum to 1."""
    p = weights / weights.sum(-1, keepdim=True).clamp(min=EPSILON)
    return -torch.xlogy(p, p).sum(-1) / allowed.sum(-1).clamp(min=2).log()


def weights_of(calls: Sequence[Call]) -> tuple[Tensor, Tensor]:
    """Returns two tensors (B, H, T, S): the weights of all calls of an AttentionWeights, joined along T, and a mask of the keys
    that each query can reach."""
    weights = torch.cat([call.output for call in calls], dim=-2)
    reachable = torch.cat([call.module.reachable(*call.inputs) for call in calls], dim=-2)
    heads = (len(weights), -1, *weights.shape[-2:])  # -1 becomes 1 in a recurrent model, which has no head dimension
    return weights.reshape(heads), reachable.reshape(heads)


def kind_of(name: str) -> str:
    """Returns the kind of attention to which a module's path or an activation's name belongs, as in KIND_NAMES."""
    side = name.partition(".")[0]
    return "cross" if "cross" in name else side if side in ("encoder", "decoder") else "alignment"


def sides_of(kind: str) -> tuple[Side, Side]:
    """Returns which tokens the rows and the columns of a kind of attention stand for."""
    if "encoder" in kind:
        return "source", "source"
    return "produced", "read" if "self" in kind else "source"
