"""Writes a trained Transformer as a model of Hugging Face's transformers.

Its `PegasusForConditionalGeneration` (Zhang et al. 2020) computes what our Transformer with the default settings does: norms
before the sublayers and after the last block, ReLU, scaled dot products, sinusoids added to the scaled embeddings. Only the
order of the model's width differs: Pegasus has all sines before all cosines, where ours alternate.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entente import checkpoint
from entente.data.tokenizer import BOS, EOS, PAD
from entente.errors import InputError
from entente.export.formats import import_package, refuse
from entente.models.transformer import Transformer
from entente.settings import ModelSettings, TransformerSettings

ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout", "zero_init"}


def refuse_other_models(settings: ModelSettings) -> None:
    """Raises InputError unless Pegasus computes the same as the model that the settings describe."""
    refuse("huggingface", settings, ANY_VALUE, {name: [value] for name, value in TransformerSettings()})


def write(run: checkpoint.TrainedRun, folder: Path, positions: int, quantization: str | None = None) -> None:
    """Writes config.json and model.safetensors. positions: the maximum number of tokens in a source or a translation. Raises
    InputError if Pegasus cannot hold the model, or transformers is not installed."""
    if quantization:
        raise InputError(f"format=huggingface quantization={quantization}: only format=ctranslate2 quantizes; leave it out")
    refuse_other_models(run.settings.model)
    if not run.vocabulary.joint:
        raise InputError("format=huggingface: data.tokenizer.joint=false: this format has one vocabulary for both sides")
    transformers = import_package("huggingface")
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
    _, unexpected = theirs.load_state_dict(_weights(model, order), strict=False)  # it ties and computes the others
    assert not unexpected
    transformers.utils.logging.disable_progress_bar()
    theirs.eval().save_pretrained(folder)


def _weights(model: Transformer, order: Tensor) -> dict[str, Tensor]:
    """Returns the weights of a Pegasus model, by their names there. order: the model's width, in the order of Pegasus."""
    weights: dict[str, Tensor] = {"model.shared.weight": model.tgt_embedding.weight[:, order]}

    def add(name: str, layer: nn.Module, rows: bool = False, columns: bool = False) -> None:
        """Adds a layer whose output (rows) or input (columns) has the model's width."""
        parameters: dict[str, Any] = dict(layer.named_parameters())
        for key, value in parameters.items():
            value = value[order] if rows else value
            weights[f"model.{name}.{key}"] = value[:, order] if columns and key == "weight" else value

    norms = {"self": "self_attn_layer_norm", "cross": "encoder_attn_layer_norm", "ff": "final_layer_norm"}
    attentions = {"self": "self_attn", "cross": "encoder_attn"}
    for side, blocks, norm in (("encoder", model.encoder, model.encoder_norm), ("decoder", model.decoder, model.decoder_norm)):
        add(f"{side}.layer_norm", norm, rows=True)
        for i, block in enumerate(blocks):
            at: Any = block
            for sublayer, layer in at.before.items():
                add(f"{side}.layers.{i}.{norms[sublayer]}", layer, rows=True)
                if sublayer == "ff":
                    add(f"{side}.layers.{i}.fc1", at.ff[0], columns=True)
                    add(f"{side}.layers.{i}.fc2", at.ff[2], rows=True)
                    continue
                attention = getattr(at, f"{sublayer}_attention")
                for ours, theirs in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
                    add(f"{side}.layers.{i}.{attentions[sublayer]}.{theirs}", getattr(attention, ours), columns=True)
                add(f"{side}.layers.{i}.{attentions[sublayer]}.out_proj", attention.out, rows=True)
    return {name: weight.detach().float() for name, weight in weights.items()}
