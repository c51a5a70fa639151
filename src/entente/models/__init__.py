"""Maps names in a configuration to model classes. A new model needs an import here and a file in configs/model."""

from entente.models.birnn import BiRNN as BiRNN
from entente.models.seq2seq import Seq2Seq as Seq2Seq
from entente.models.transformer import Transformer as Transformer

MODELS: dict[str, type[Seq2Seq]] = {kind.__name__.lower(): kind for kind in Seq2Seq.__subclasses__()}
