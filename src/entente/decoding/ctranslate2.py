"""Exports a trained Transformer to CTranslate2 (Klein et al. 2020; github.com/OpenNMT/CTranslate2), a library for fast
translation on CPUs, and translates with it.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from entente import checkpoint
from entente.data.tokenizer import EOS, MAX_PIECES, Tokenizer
from entente.decoding.search import Hypothesis, length_limits, length_penalty, rank
from entente.decoding.translate import collect_hypotheses, encode_nonempty
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.models.transformer import NORM_EPSILON, Block, SwiGLU, Transformer
from entente.settings import ModelSettings, SearchSettings, TransformerSettings
from entente.validation import to_text

TOKENS_PER_BATCH = 1024  # maximum number of source tokens in a worker's batch, unless a single sentence is longer
# Transformer arguments for which CTranslate2 supports any value; `refuse_other_models` checks the other arguments.
ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout"}
ANY_VALUE |= {"tied", "positions", "activation", "zero_init"}


def import_ctranslate2() -> Any:
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        advice = "run pip install 'entente[engines]', or use engine=torch"
        raise InputError(f"engine=ctranslate2: the package ctranslate2 cannot be loaded ({error}); {advice}") from error


def refuse_other_models(settings: ModelSettings) -> None:
    """Raises InputError unless CTranslate2 supports the model that the settings describe."""
    unsupported = ["name"]
    if isinstance(settings, TransformerSettings):
        supported: dict[str, list[Any]] = {name: [value] for name, value in TransformerSettings()}
        supported |= {"norm": ["pre", "post", "rms"], "d_k": [None, settings.d_model // settings.n_heads]}
        supported |= {name: [*permutations(supported[name][0])] for name in ("residual", "sublayers", "projections")}
        unsupported = [name for name, value in settings if name not in ANY_VALUE and value not in supported[name]]
    if unsupported:
        values_text = ", ".join(f"model.{name}={to_text(getattr(settings, name))}" for name in unsupported)
        raise InputError(f"engine=ctranslate2: {values_text}: CTranslate2 does not support this model; use engine=torch")


def write_ctranslate2(run: checkpoint.TrainedRun, folder: Path, quantization: str | None = None, positions: int = 4096) -> None:
    """Writes a checkpoint as a CTranslate2 model. Its vocabularies are the SentencePiece pieces, and every source must end with
    </s>. quantization: None keeps float32; "int8" stores weight matrices in 8 bits, with one scale per row. positions: the
    maximum number of tokens in a source or a translation. Raises InputError if CTranslate2 lacks the model or is not
    installed."""
    refuse_other_models(run.settings.model)
    model = run.model
    assert isinstance(model, Transformer)
    post, rms = (isinstance(model.encoder_norm, kind) for kind in (nn.Identity, nn.RMSNorm))
    first: Any = model.encoder[0]
    gated = isinstance(first.ff[1], SwiGLU)
    options = {"pre_norm": not post, "rms_norm": rms, "ffn_glu": gated}
    if model.positions == "rotary":
        options |= {"rotary_dim": first.self_attention.d_k // 2 * 2, "rotary_interleave": False}
    specs = import_ctranslate2().specs.transformer_spec
    activation = specs.common_spec.Activation.SWISH if gated else specs.common_spec.Activation.RELU
    sides = (specs.TransformerEncoderSpec, specs.TransformerDecoderSpec)
    spec = specs.TransformerSpec(*(side(len(model.encoder), model.n_heads, activation=activation, **options) for side in sides))
    spec.encoder.position_encodings.encodings = _to_numpy(model.position_vectors("src", 0, positions))
    if model.positions != "rotary":
        spec.decoder.position_encodings.encodings = _to_numpy(model.position_vectors("tgt", 0, positions))
    spec.encoder.embeddings[0].weight = _to_numpy(model.src_embedding.weight)
    spec.decoder.embeddings.weight = _to_numpy(model.tgt_embedding.weight)
    blocks = zip([*spec.encoder.layer, *spec.decoder.layer], [*model.encoder, *model.decoder], strict=True)
    for layer, block in blocks:
        assert isinstance(block, Block)
        norms = block.after if post else block.before
        _attention(layer.self_attention, [["query", "key", "value"], ["out"]], block.self_attention, norms["self"])
        if "cross" in norms:
            _attention(layer.attention, [["query"], ["key", "value"], ["out"]], block.cross_attention, norms["cross"])
        first, last = block.ff[0], block.ff[2]
        gate = slice(last.in_features, None) if gated else slice(None)
        _linear(layer.ffn.linear_0, [first], gate)
        if gated:
            _linear(layer.ffn.linear_0_noact, [first], slice(last.in_features))
        _linear(layer.ffn.linear_1, [last])
        _norm(layer.ffn.layer_norm, norms["ff"])
    if not post:
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.config.layer_norm_epsilon = NORM_EPSILON if rms else nn.LayerNorm(1).eps
    spec.decoder.projection.weight = _to_numpy(model.output.weight)
    # As in our own search, the padding symbol is never generated.
    spec.decoder.projection.bias = np.where(np.arange(model.output.out_features) == model.pad_id, np.float32(-np.inf), 0)
    spec.register_source_vocabulary(_pieces(run.vocabulary.src))
    spec.register_target_vocabulary(_pieces(run.vocabulary.tgt))
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _to_numpy(tensor: Any) -> np.ndarray:
    """Returns a tensor as a float32 NumPy array, copied because quantization overwrites it."""
    return tensor.detach().float().cpu().numpy().copy()


def _linear(spec: Any, layers: Iterable[Any], rows: slice = slice(None)) -> None:
    """Combines linear layers with the same input into one layer of the spec. rows: which rows of the weights to keep."""
    spec.weight = np.concatenate([_to_numpy(layer.weight) for layer in layers])[rows]
    spec.bias = np.concatenate([_to_numpy(layer.bias) for layer in layers])[rows]


def _attention(spec: Any, parts: list[list[str]], layer: MultiHeadAttention, norm: nn.Module) -> None:
    for linear, names in zip(spec.linear, parts, strict=True):
        _linear(linear, [getattr(layer, name) for name in names])
    _norm(spec.layer_norm, norm)


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _to_numpy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _to_numpy(norm.bias)


def _pieces(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


class CTranslate2:
    """Translates on the CPU with `torch.get_num_threads()` single-threaded workers, and can be used in place of `translate`.
    Greedy search in float32 gives the same translations, unless two tokens are equally likely within float32 accuracy. Beam
    search of width K stops later than `search`, once 2 K hypotheses have ended, which this class ranks with our length penalty,
    so that its translations may differ. Raises InputError if CTranslate2 does not support the model or the beam, or is not
    installed."""

    def __init__(self, run: checkpoint.TrainedRun, settings: SearchSettings, quantization: str | None = None) -> None:
        if settings.beam > (widest := len(run.vocabulary.tgt) // 2):
            advice = f"engine=ctranslate2 takes at most {widest}, half the vocabulary; use engine=torch"
            raise InputError(f"search.beam={settings.beam}: {advice}")
        self._settings, self._vocabulary = settings, run.vocabulary
        self._pieces = _pieces(run.vocabulary.src)
        self._ids = {piece: i for i, piece in enumerate(_pieces(run.vocabulary.tgt))}
        longest = torch.tensor(MAX_PIECES + 1)  # including the end symbol
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(run, Path(folder), quantization, positions=int(max(longest, length_limits(settings, longest))))
            package = import_ctranslate2()
            self._translator = package.Translator(folder, inter_threads=torch.get_num_threads(), intra_threads=1)
        self.name = f"ctranslate2 {package.__version__}, {self._translator.compute_type}"  # compute_type depends on the CPU

    def __call__(self, sentences: list[str]) -> list[list[Hypothesis]]:
        """Returns the n best hypotheses of each sentence, in input order."""
        by_length: dict[int, dict[int, list[str]]] = defaultdict(dict)  # since each call has one length limit
        for i, ids in zip(*encode_nonempty(sentences, self._vocabulary), strict=True):
            by_length[len(ids)][i] = [self._pieces[j] for j in ids]
        waiting: dict[int, Any] = {}
        for length, group in sorted(by_length.items(), reverse=True):  # longest first, because they take the most time
            results = self._translator.translate_batch(
                [*group.values()],
                beam_size=self._settings.beam,
                num_hypotheses=1 if self._settings.beam == 1 else 2 * self._settings.beam,
                patience=2,
                length_penalty=0,  # scores are plain log-probabilities
                max_decoding_length=int(length_limits(self._settings, torch.tensor(length))),
                min_decoding_length=0,
                max_input_length=0,  # do not truncate sources
                max_batch_size=max(TOKENS_PER_BATCH, length),
                batch_type="tokens",
                return_end_token=True,
                return_scores=True,
                asynchronous=True,
            )
            waiting |= zip(group, results, strict=True)
        return collect_hypotheses(sentences, {i: self._ranked(result.result()) for i, result in waiting.items()})

    def _ranked(self, result: Any) -> list[Hypothesis]:
        hypotheses = []
        for pieces, total in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self._ids[piece] for piece in pieces]
            ended, score = tokens[-1] == EOS, total / length_penalty(self._settings, len(tokens))
            hypotheses.append(Hypothesis(tokens[:-1] if ended else tokens, score, ended))
        return sorted(hypotheses, key=rank)[: self._settings.n_best]
