"""A trained Transformer in the format of CTranslate2, and its translations (Klein et al. 2020, section 4).

CTranslate2 (github.com/OpenNMT/CTranslate2) is a program of its own, written for fast translation on CPUs. Nothing here
describes its files: its own `TransformerSpec` takes our weights and writes them.

Shapes: D model width, V vocabulary, P positions.
"""

import math
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entente import checkpoint
from entente.config.schema import defaults, shown
from entente.data.files import clean
from entente.data.tokenizer import EOS, LONGEST, PAD, Tokenizer
from entente.decoding.search import Hypothesis, Search, rank
from entente.errors import InputError
from entente.models import Transformer
from entente.models.attention import PROJECTIONS
from entente.models.transformer import LEARNED_POSITIONS, SUBLAYERS, Block, sinusoids

BATCH = 1024  # source tokens translated together by one worker

# The models that CTranslate2 can compute, by the arguments of ours: the values an argument may have, None any. One that is not
# here is refused, whatever its value: a new argument changes what is computed until somebody has looked.
SAME: dict[str, Collection[Any] | None] = {
    "name": ["transformer"],
    **dict.fromkeys(("d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout", "tied")),
    "residual": [set(SUBLAYERS)],
    "sublayers": [set(SUBLAYERS)],
    "projections": [set(PROJECTIONS)],
    "norm": ["pre", "post"],
    "positions": ["sinusoidal", "learned", "none"],  # it adds a table, of whatever is in it
    "mask_padding": [True],
    "mask_future": [True],
    "score": ["dot"],
    "scale": ["d_k"],
    "d_k": [None],
    "softmax": ["keys"],
    "mask_value": [None],
}


def library() -> ModuleType:
    """The package ctranslate2, which is installed by those who want it; an InputError where it is not."""
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise InputError(
            f"engine=ctranslate2: the package ctranslate2 cannot be loaded ({error}); "
            "install it by: pip install 'entente[engines]', or use engine=torch"
        ) from error


def computable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `model` part of a configuration, with its defaults; an InputError unless CTranslate2 computes that model too."""
    if config["name"] != "transformer":
        wrong, complete = ["name"], dict(config)
    else:
        complete = {**defaults(Transformer), **config}
        if complete["d_k"] == complete["d_model"] // complete["n_heads"]:
            complete["d_k"] = None  # said, and the same
        wrong = [name for name, value in complete.items() if name not in SAME or not _among(value, SAME[name])]
    if wrong:
        what = ", ".join(f"model.{name}={shown(complete[name])}" for name in wrong)
        raise InputError(f"engine=ctranslate2: {what}: CTranslate2 has no such model; use engine=torch")
    return complete


def _among(value: object, allowed: Collection[Any] | None) -> bool:
    given = set(value) if isinstance(value, list | tuple) else value  # of sublayers, the order says nothing
    return allowed is None or given in allowed


def write_ctranslate2(run: checkpoint.Run, folder: Path, quantization: str | None = None, positions: int = 4096) -> None:
    """Writes a checkpoint as a CTranslate2 model: float32, or with matrices in 8 bits (quantization="int8", one scale a row).

    The vocabularies are SentencePiece's pieces; a source ends in </s>, which the caller adds. positions: how many there are
    in the table that stands for our sines and cosines, neither source nor translation may have more tokens. The padding symbol
    has the bias -inf in the output projection, so that here too it is never produced. An InputError if CTranslate2 has no such
    model, or is not installed.
    """
    pre = computable(run.config["model"])["norm"] == "pre"
    library()
    specs = import_module("ctranslate2.specs.transformer_spec")
    model = run.model
    assert isinstance(model, Transformer)
    spec = specs.TransformerSpec.from_config(len(model.encoder), model.n_heads, pre_norm=pre)
    spec.encoder.position_encodings.encodings = _numbers(_positions(model, "src", positions))
    spec.decoder.position_encodings.encodings = _numbers(_positions(model, "tgt", positions))
    spec.encoder.embeddings[0].weight = _numbers(model.src_embedding.weight)
    spec.decoder.embeddings.weight = _numbers(model.tgt_embedding.weight)
    blocks = zip([*spec.encoder.layer, *spec.decoder.layer], [*model.encoder, *model.decoder], strict=True)
    for layer, block in blocks:
        assert isinstance(block, Block)
        norms = block.before if pre else block.after
        attention = block.self_attention
        _linear(layer.self_attention.linear[0], attention.query, attention.key, attention.value)
        _linear(layer.self_attention.linear[1], attention.out)
        _norm(layer.self_attention.layer_norm, norms["self"])
        if "cross" in norms:
            attention = block.cross_attention
            _linear(layer.attention.linear[0], attention.query)
            _linear(layer.attention.linear[1], attention.key, attention.value)
            _linear(layer.attention.linear[2], attention.out)
            _norm(layer.attention.layer_norm, norms["cross"])
        _linear(layer.ffn.linear_0, block.ff[0])
        _linear(layer.ffn.linear_1, block.ff[2])
        _norm(layer.ffn.layer_norm, norms["ff"])
    if pre:
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.decoder.projection.weight = _numbers(model.output.weight)
    spec.decoder.projection.bias = np.where(np.arange(model.output.out_features) == model.pad_id, np.float32(-np.inf), 0)
    spec.register_source_vocabulary(_pieces(run.vocabulary.src))
    spec.register_target_vocabulary(_pieces(run.vocabulary.tgt))
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _positions(model: Transformer, side: str, count: int) -> Tensor:
    """What is added to the embeddings of the first `count` positions, (P, D); see Transformer._embed."""
    if model.positions == "sinusoidal":
        return sinusoids(0, count, model.d_model, like=torch.empty(0))
    if model.positions == "learned":
        rows = torch.arange(count).clamp(max=LEARNED_POSITIONS - 1)
        learned: Tensor = model.get_submodule(f"{side}_position").weight  # type: ignore[assignment]
        return learned.cpu()[rows] * math.sqrt(model.d_model)
    return torch.zeros(count, model.d_model)


def _numbers(tensor: Tensor) -> np.ndarray:
    """float32, and a copy: quantizing writes over what it is given."""
    return tensor.detach().float().cpu().numpy().copy()


def _linear(spec: Any, *layers: nn.Module) -> None:
    """One product for several linear layers of one input, their outputs side by side."""
    spec.weight = np.concatenate([_numbers(layer.weight) for layer in layers])  # type: ignore[arg-type]
    spec.bias = np.concatenate([_numbers(layer.bias) for layer in layers])  # type: ignore[arg-type]


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)  # type: ignore[arg-type]


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


class CTranslate2:
    """Translates sentences as `search.translate` does, on the CPU, with as many workers of one thread as torch has threads.

    In float32, greedy search gives the same translations, unless two tokens are equally likely to float32's accuracy. Beams of
    width K grow alike too; what differs is when a sentence is over. CTranslate2 does not know our penalty ((5 + n) / 6)^alpha
    and is asked for none: it goes on until the most likely candidate of a step has ended and 2 K hypotheses have, mostly some
    steps longer than ours, and these are ranked here as ours are. So the best is ours, but for a sentence whose best one ends
    later than 2 K others, which is lost (as may be where a loop up to the limit is likelier than any end), or later than ours
    waits, which is won; of n_best > 1, the later ones are now and then such. int8 rounds weights and activations: it translates
    some sentences otherwise.

    InputError: CTranslate2 has no such model, is not installed, or has no such beam.
    """

    def __init__(self, run: checkpoint.Run, how: Search, quantization: str | None = None) -> None:
        computable(run.config["model"])
        package = library()
        vocabulary = run.vocabulary
        if 2 * how.beam > len(vocabulary.tgt):
            most = len(vocabulary.tgt) // 2
            raise InputError(
                f"search.beam={how.beam}: engine=ctranslate2 takes at most {most}, half the vocabulary; use engine=torch"
            )
        self._how, self._vocabulary = how, vocabulary
        self._pieces = _pieces(vocabulary.src)
        self._ids = {piece: i for i, piece in enumerate(_pieces(vocabulary.tgt))}
        longest = LONGEST + 1  # the end symbol too
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(run, Path(folder), quantization, positions=max(longest, _limit(how, longest)))
            self._translator = package.Translator(folder, inter_threads=torch.get_num_threads(), intra_threads=1)
        self.name = f"ctranslate2 {package.__version__}, {self._translator.compute_type}"  # what this CPU can

    def __call__(self, sentences: list[str]) -> list[list[Hypothesis]]:
        """The n best hypotheses of each sentence, in the order given. An empty sentence has one empty translation."""
        found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, True)] for _ in sentences]
        cleaned = [clean(sentence) for sentence in sentences]
        full = [i for i, sentence in enumerate(cleaned) if sentence]
        alike: dict[int, list[tuple[int, list[str]]]] = defaultdict(list)  # of one length, since a call has one limit
        for i, ids in zip(full, self._vocabulary.encode_src([cleaned[i] for i in full]), strict=True):
            alike[len(ids)].append((i, [self._pieces[j] for j in ids]))
        waiting = [
            (i, result)
            for length, group in sorted(alike.items(), reverse=True)  # the longest take longest: they must not come last
            for (i, _), result in zip(group, self._begin([pieces for _, pieces in group], length), strict=True)
        ]
        for i, result in waiting:
            found[i] = self._ranked(result.result())
        return found

    def _begin(self, sources: list[list[str]], length: int) -> list[Any]:
        """Sources of one length go to the workers; what comes back will have the results."""
        beam = self._how.beam
        results: list[Any] = self._translator.translate_batch(
            sources,
            beam_size=beam,
            num_hypotheses=1 if beam == 1 else 2 * beam,
            patience=2,
            length_penalty=0,  # scores are plain log-probabilities
            max_decoding_length=_limit(self._how, length),
            min_decoding_length=0,
            max_input_length=0,  # which is: not cut
            max_batch_size=max(BATCH, length),
            batch_type="tokens",
            return_end_token=True,
            return_scores=True,
            asynchronous=True,
        )
        return results

    def _ranked(self, result: Any) -> list[Hypothesis]:
        hypotheses = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces]
            ended = tokens[-1] == EOS
            hypotheses.append(Hypothesis(tokens[:-1] if ended else tokens, score / self._how.penalty(len(tokens)), ended))
        return sorted(hypotheses, key=rank)[: self._how.n_best]


def _limit(how: Search, length: int) -> int:
    """Of a source of `length` tokens: the longest translation, end symbol counted."""
    return int(how.limits(torch.full((1, length), EOS), PAD))
