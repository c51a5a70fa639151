"""The two models, by the name a configuration gives them."""

from entente.models.birnn import BiRNN
from entente.models.seq2seq import Seq2Seq
from entente.models.transformer import Transformer

MODELS: dict[str, type[Seq2Seq]] = {"transformer": Transformer, "birnn": BiRNN}
