"""Writes trained Transformers in the formats of two other libraries.

CTranslate2 (Klein et al. 2020; github.com/OpenNMT/CTranslate2) translates fast on CPUs. In Hugging Face's transformers,
`PegasusForConditionalGeneration` (Zhang et al. 2020) computes what our Transformer with the default settings does: norms before
the sublayers and after the last block, ReLU, scaled dot products, sinusoids added to the scaled embeddings. Only the order of
the model's width differs: Pegasus has all sines before all cosines, where ours alternate.
"""

from collections.abc import Iterable
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entente import checkpoint
from entente.data.tokenizer import BOS, EOS, PAD
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.models.transformer import NORM_EPSILON, Block, SwiGLU, Transformer
from entente.settings import ModelSettings, TransformerSettings
from entente.validation import to_text

# Settings that may have any value in both formats
ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout", "zero_init", "equal_heads"}
# Parts of the names of our weights, and what they are called in Pegasus
NAMES = {"coder.": "coder.layers.", "coder_norm": "coder.layer_norm", "ff.0": "fc1", "ff.2": "fc2"}
NAMES |= {"before.self": "self_attn_layer_norm", "before.cross": "encoder_attn_layer_norm", "before.ff": "final_layer_norm"}
NAMES |= {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
NAMES |= {".query": ".q_proj", ".key": ".k_proj", ".value": ".v_proj", ".out": ".out_proj"}
READERS = ("q_proj", "k_proj", "v_proj", "fc1")  # layers whose input has the model's width; the output of all others has it


def refuse_other_models(format: str, settings: ModelSettings) -> None:
    """Raises InputError that names the settings of a model that a format cannot hold."""
    any_value, supported = ANY_VALUE, {name: [value] for name, value in TransformerSettings()}
    if format == "ctranslate2":
        any_value = ANY_VALUE | {"tied", "positions", "activation"}
        supported |= {name: [*permutations(supported[name][0])] for name in ("residual", "sublayers", "projections")}
        supported["norm"] = ["pre", "post", "rms"]
        if isinstance(settings, TransformerSettings):
            supported["d_k"] = [None, settings.d_model // settings.n_heads]
    if unsupported := [name for name, value in settings if name not in any_value and value not in supported.get(name, ())]:
        names = ["name"] if "name" in unsupported else unsupported  # all other settings of another model differ too
        values = ", ".join(f"model.{name}={to_text(getattr(settings, name))}" for name in names)
        raise InputError(f"format={format}: {values}: this format cannot hold such a model; see 'Export' in the README")


def import_package(format: str, name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"format={format}: the package {name} cannot be loaded ({error}); run pip install {name}") from error


def write_ctranslate2(run: checkpoint.TrainedRun, folder: Path, positions: int, quantization: str | None = None) -> None:
    """Writes a model whose vocabularies are the SentencePiece pieces, and whose sources must end with </s>. positions: the
    maximum number of tokens in a source or a translation. quantization: None keeps float32; "int8" stores weight matrices in 8
    bits, with one scale per row. Raises InputError if CTranslate2 lacks the model or is not installed."""
    refuse_other_models("ctranslate2", run.settings.model)
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


def write_huggingface(run: checkpoint.TrainedRun, folder: Path, positions: int, _quantization: str | None = None) -> None:
    """Writes config.json and model.safetensors. positions: the maximum number of tokens in a source or a translation. Raises
    InputError if Pegasus cannot hold the model, or transformers is not installed."""
    refuse_other_models("huggingface", run.settings.model)
    if not run.vocabulary.joint:
        raise InputError("format=huggingface: data.tokenizer.joint=false: this format has one vocabulary for both sides")
    transformers = import_package("huggingface", "transformers")
    model, settings = run.model, run.settings.model
    assert isinstance(model, Transformer) and isinstance(settings, TransformerSettings)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", settings.n_layers), ("attention_heads", settings.n_heads), ("ffn_dim", settings.d_ff))
    }
    config = transformers.PegasusConfig(
        vocab_size=len(run.vocabulary.tgt),
        d_model=settings.d_model,
        **sides,
        dropout=settings.dropout,
        attention_dropout=settings.attention_dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=positions,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    theirs = transformers.PegasusForConditionalGeneration(config)
    theirs.final_logits_bias[0, PAD] = -torch.inf  # as in our own search, the padding symbol is never generated
    width = torch.arange(settings.d_model)
    order = torch.cat([width[::2], width[1::2]])
    _, unexpected = theirs.load_state_dict(_pegasus_weights(model, order), strict=False)  # it ties and computes the others
    assert not unexpected
    transformers.utils.logging.disable_progress_bar()
    theirs.eval().save_pretrained(folder)


def _pegasus_weights(model: Transformer, order: Tensor) -> dict[str, Tensor]:
    """Returns the weights of a Pegasus model, by their names there. order: the model's width, in the order of Pegasus."""
    weights = {"model.shared.weight": model.tgt_embedding.weight.detach()[:, order]}
    for name, value in model.state_dict().items():
        if not name.startswith(("encoder", "decoder")):
            continue
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        if not any(f".{layer}." in name for layer in READERS):
            value = value[order]
        elif name.endswith("weight"):
            value = value[:, order]
        weights[f"model.{name}"] = value
    return {name: weight.float() for name, weight in weights.items()}
