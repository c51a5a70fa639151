"""Writes a trained Transformer in the format of CTranslate2 (Klein et al. 2020; github.com/OpenNMT/CTranslate2), a library for
fast translation on CPUs."""

from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from entente import checkpoint
from entente.export.formats import import_package, refuse
from entente.models.attention import MultiHeadAttention
from entente.models.transformer import NORM_EPSILON, Block, SwiGLU, Transformer
from entente.settings import ModelSettings, TransformerSettings

# Settings that may have any value; `refuse_other_models` checks the others.
ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout"}
ANY_VALUE |= {"tied", "positions", "activation", "zero_init", "equal_heads"}


def refuse_other_models(settings: ModelSettings) -> None:
    """Raises InputError unless CTranslate2 supports the model that the settings describe."""
    supported: dict[str, list[Any]] = {name: [value] for name, value in TransformerSettings()}
    supported |= {name: [*permutations(supported[name][0])] for name in ("residual", "sublayers", "projections")}
    supported["norm"] = ["pre", "post", "rms"]
    if isinstance(settings, TransformerSettings):
        supported["d_k"] = [None, settings.d_model // settings.n_heads]
    refuse("ctranslate2", settings, ANY_VALUE, supported)


def write(run: checkpoint.TrainedRun, folder: Path, positions: int, quantization: str | None = None) -> None:
    """Writes a model whose vocabularies are the SentencePiece pieces, and whose sources must end with </s>. positions: the
    maximum number of tokens in a source or a translation. quantization: None keeps float32; "int8" stores weight matrices in 8
    bits, with one scale per row. Raises InputError if CTranslate2 lacks the model or is not installed."""
    refuse_other_models(run.settings.model)
    model = run.model
    assert isinstance(model, Transformer)
    post, rms = (isinstance(model.encoder_norm, kind) for kind in (nn.Identity, nn.RMSNorm))
    first: Any = model.encoder[0]
    gated = isinstance(first.ff[1], SwiGLU)
    options = {"pre_norm": not post, "rms_norm": rms, "ffn_glu": gated}
    if model.positions == "rotary":
        options |= {"rotary_dim": first.self_attention.d_k // 2 * 2, "rotary_interleave": False}
    specs = import_package("ctranslate2", "ctranslate2").specs.transformer_spec
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
    source, target = (side.pieces(range(len(side))) for side in (run.vocabulary.src, run.vocabulary.tgt))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
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
