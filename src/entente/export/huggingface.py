"""Writes a trained Transformer as a model of Hugging Face's transformers.

Its `PegasusForConditionalGeneration` (Zhang et al. 2020) computes what our Transformer with the default settings does: norms
before the sublayers and after the last block, ReLU, scaled dot products, sinusoids added to the scaled embeddings. Only the
order of the model's width differs: Pegasus has all sines before all cosines, where ours alternate.
"""

from pathlib import Path

import torch
from torch import Tensor

from entente import checkpoint
from entente.data.tokenizer import BOS, EOS, PAD
from entente.errors import InputError
from entente.export.formats import import_package, refuse
from entente.models.transformer import Transformer
from entente.settings import ModelSettings, TransformerSettings

ANY_VALUE = {"d_model", "n_heads", "n_layers", "d_ff", "dropout", "attention_dropout", "zero_init", "equal_heads"}
# Parts of the names of our weights, and what they are called in Pegasus
NAMES = {"coder.": "coder.layers.", "coder_norm": "coder.layer_norm", "ff.0": "fc1", "ff.2": "fc2"}
NAMES |= {"before.self": "self_attn_layer_norm", "before.cross": "encoder_attn_layer_norm", "before.ff": "final_layer_norm"}
NAMES |= {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
NAMES |= {".query": ".q_proj", ".key": ".k_proj", ".value": ".v_proj", ".out": ".out_proj"}
READERS = ("q_proj", "k_proj", "v_proj", "fc1")  # layers whose input has the model's width; the output of all others has it


def refuse_other_models(settings: ModelSettings) -> None:
    """Raises InputError unless Pegasus computes the same as the model that the settings describe."""
    refuse("huggingface", settings, ANY_VALUE, {name: [value] for name, value in TransformerSettings()})


def write(run: checkpoint.TrainedRun, folder: Path, positions: int, _quantization: str | None = None) -> None:
    """Writes config.json and model.safetensors. positions: the maximum number of tokens in a source or a translation. Raises
    InputError if Pegasus cannot hold the model, or transformers is not installed."""
    refuse_other_models(run.settings.model)
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
    _, unexpected = theirs.load_state_dict(_weights(model, order), strict=False)  # it ties and computes the others
    assert not unexpected
    transformers.utils.logging.disable_progress_bar()
    theirs.eval().save_pretrained(folder)


def _weights(model: Transformer, order: Tensor) -> dict[str, Tensor]:
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
