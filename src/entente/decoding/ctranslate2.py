"""A trained Transformer in the format of CTranslate2, and its translations (Klein et al. 2020, section 4).

CTranslate2 (github.com/OpenNMT/CTranslate2) is a separate program, written for fast translation on CPUs. Its own
`TransformerSpec` takes our weights and writes its files.
"""

import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from entente import checkpoint
from entente.config.schema import defaults, shown
from entente.data.tokenizer import EOS, MAX_PIECES, Tokenizer
from entente.decoding.search import Hypothesis, Search, rank
from entente.decoding.translate import in_order, with_text
from entente.errors import InputError
from entente.models import Transformer
from entente.models.transformer import Block

BATCH = 1024  # source tokens translated together by one worker
# CTranslate2 computes a Transformer whose arguments have their defaults, except these, and `norm`, which can be post too.
ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout", "tied", "positions"}


def library() -> Any:
    """The package ctranslate2, which is an optional dependency; an InputError where it is not installed."""
    try:
        import ctranslate2

        return ctranslate2
    except ImportError as error:
        advice = "install it by: pip install 'entente[engines]', or use engine=torch"
        raise InputError(f"engine=ctranslate2: the package ctranslate2 cannot be loaded ({error}); {advice}") from error


def refuse_other_models(config: Mapping[str, Any]) -> None:
    """Raises an InputError unless CTranslate2 computes the model that this `model` part of a configuration describes."""

    def comparable(value: object) -> object:
        return set(value) if isinstance(value, list | tuple) else value  # of sublayers, the order says nothing

    usual = defaults(Transformer)
    complete = {**usual, **config}
    allowed = {name: [comparable(value)] for name, value in usual.items()}
    allowed |= {"name": ["transformer"], "norm": ["pre", "post"], "d_k": [None, complete["d_model"] // complete["n_heads"]]}
    names = config if config["name"] == "transformer" else ["name"]
    wrong = [name for name in names if name not in ANY_VALUE and comparable(config[name]) not in allowed.get(name, [])]
    if wrong:
        what = ", ".join(f"model.{name}={shown(config[name])}" for name in wrong)
        raise InputError(f"engine=ctranslate2: {what}: CTranslate2 has no such model; use engine=torch")


def write_ctranslate2(run: checkpoint.Run, folder: Path, quantization: str | None = None, positions: int = 4096) -> None:
    """Writes a checkpoint as a CTranslate2 model: float32, or with matrices in 8 bits (quantization="int8", one scale a row).
    The vocabularies are SentencePiece's pieces; a source ends in </s>, which the caller adds. positions: rows of the table that
    replaces our sines and cosines; neither source nor translation may have more tokens. An InputError if CTranslate2 has no
    such model, or is not installed."""
    refuse_other_models(run.config["model"])
    model = run.model
    assert isinstance(model, Transformer)
    pre = isinstance(model.encoder_norm, nn.LayerNorm)
    spec = library().specs.TransformerSpec.from_config(len(model.encoder), model.n_heads, pre_norm=pre)
    spec.encoder.position_encodings.encodings = _numbers(model.position_vectors("src", 0, positions))
    spec.decoder.position_encodings.encodings = _numbers(model.position_vectors("tgt", 0, positions))
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
    # Here too the padding symbol is never produced.
    spec.decoder.projection.bias = np.where(np.arange(model.output.out_features) == model.pad_id, np.float32(-np.inf), 0)
    spec.register_source_vocabulary(_pieces(run.vocabulary.src))
    spec.register_target_vocabulary(_pieces(run.vocabulary.tgt))
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _numbers(tensor: Any) -> np.ndarray:
    """float32, and a copy: quantizing writes over what it is given."""
    return tensor.detach().float().cpu().numpy().copy()


def _linear(spec: Any, *layers: nn.Module) -> None:
    """One product for several linear layers of one input, their outputs next to each other."""
    spec.weight = np.concatenate([_numbers(layer.weight) for layer in layers])
    spec.bias = np.concatenate([_numbers(layer.bias) for layer in layers])


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


class CTranslate2:
    """Translates sentences as `translate` does, on the CPU, with as many workers of one thread as torch has threads.

    In float32, greedy search gives the same translations, unless two tokens are equally likely to float32's accuracy; int8
    rounds weights and activations, which changes some. Beams of width K grow as ours do, but end later. CTranslate2 does not
    know our penalty ((5 + n) / 6)^alpha, so it is asked for none: it searches until the most likely candidate of a step has
    ended and 2 K hypotheses have, and these are ranked here as ours are. The best one differs where ours ends after 2 K others,
    and is lost (as it may be to a loop up to the limit that is likelier than any end), or where a better one ends after our
    search has stopped. With n_best > 1, later ones differ more.

    Raises an InputError if CTranslate2 has no such model or no such beam, or is not installed."""

    def __init__(self, run: checkpoint.Run, how: Search, quantization: str | None = None) -> None:
        most = len(run.vocabulary.tgt) // 2
        if how.beam > most:
            raise InputError(
                f"search.beam={how.beam}: engine=ctranslate2 takes at most {most}, half the vocabulary; use engine=torch"
            )
        self._how, self._vocabulary = how, run.vocabulary
        self._pieces = _pieces(run.vocabulary.src)
        self._ids = {piece: i for i, piece in enumerate(_pieces(run.vocabulary.tgt))}
        longest = torch.tensor(MAX_PIECES + 1)  # the end symbol too
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(run, Path(folder), quantization, positions=int(max(longest, how.limits(longest))))
            package = library()
            self._translator = package.Translator(folder, inter_threads=torch.get_num_threads(), intra_threads=1)
        self.name = f"ctranslate2 {package.__version__}, {self._translator.compute_type}"  # what this CPU can

    def __call__(self, sentences: list[str]) -> list[list[Hypothesis]]:
        """The n best hypotheses of each sentence, in the order given. An empty sentence has one empty translation."""
        alike: dict[int, dict[int, list[str]]] = defaultdict(dict)  # of one length, since a call has one limit
        for i, ids in zip(*with_text(sentences, self._vocabulary), strict=True):
            alike[len(ids)][i] = [self._pieces[j] for j in ids]
        waiting: dict[int, Any] = {}
        for length, group in sorted(alike.items(), reverse=True):  # the longest take longest: they must not come last
            results = self._translator.translate_batch(
                [*group.values()],
                beam_size=self._how.beam,
                num_hypotheses=1 if self._how.beam == 1 else 2 * self._how.beam,
                patience=2,
                length_penalty=0,  # scores are plain log-probabilities
                max_decoding_length=int(self._how.limits(torch.tensor(length))),
                min_decoding_length=0,
                max_input_length=0,  # no input is cut
                max_batch_size=max(BATCH, length),
                batch_type="tokens",
                return_end_token=True,
                return_scores=True,
                asynchronous=True,
            )
            waiting |= zip(group, results, strict=True)
        return in_order(sentences, {i: self._ranked(result.result()) for i, result in waiting.items()})

    def _ranked(self, result: Any) -> list[Hypothesis]:
        hypotheses = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces]
            ended = tokens[-1] == EOS
            hypotheses.append(Hypothesis(tokens[:-1] if ended else tokens, score / self._how.penalty(len(tokens)), ended))
        return sorted(hypotheses, key=rank)[: self._how.n_best]
