"""Maps names in a configuration to model classes. A new model needs an entry here, and its settings in entente.settings."""

from typing import Any

from entente.models.birnn import BiRNN
from entente.models.seq2seq import Seq2Seq, Sizes
from entente.models.transformer import Transformer
from entente.settings import ModelSettings

MODELS: dict[str, Any] = {"transformer": Transformer, "birnn": BiRNN}


def build(settings: ModelSettings, sizes: Sizes) -> Seq2Seq:
    """Returns the untrained model that the settings describe."""
    model: Seq2Seq = MODELS[settings.name](sizes, settings)
    return model
