"""Provides all tests with a small Transformer and a small BiRNN in float64, and a batch. The sizes are distinct, and prime if
possible, so that code that swaps two dimensions fails. The pad id is not 0, so that code that assumes 0 fails too."""

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.models.build import MODELS, build
from entente.models.seq2seq import Seq2Seq, Sizes, pad
from entente.settings import BiRNNSettings, ModelSettings, TransformerSettings

torch.set_num_threads(1)
# A background job of a shell ignores SIGINT, and so would the processes that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # as the command sets it
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that the tests start, so that two tests do not compete for the cores

PAD, BOS, EOS = 3, 0, 2
SRC_VOCAB, TGT_VOCAB = 31, 37
LENGTHS = (11, 7, 1, 5, 2)  # number of tokens in each source sentence of the batch
T = 13  # number of tokens in each target sentence
FRENCH = ["L'été, Jane n'a pas dormi.", "Le chat noir dort.", "Il a faim."]
ENGLISH = ["In summer, Jane did not sleep.", "The black cat sleeps here.", "He is hungry."]
SIZES: dict[str, dict[str, int]] = {
    "transformer": {"d_model": 21, "n_heads": 3, "n_layers": 2, "d_ff": 29},
    "birnn": {"d_embedding": 17, "d_hidden": 19, "d_attention": 23},
}
SETTINGS: dict[str, Any] = {"transformer": TransformerSettings, "birnn": BiRNNSettings}


def small_settings(name: str, **changes: Any) -> ModelSettings:
    settings: ModelSettings = SETTINGS[name](**{**SIZES[name], **changes})
    return settings


def small(name: str, seed: int = 5, spread: float = 0.0, **changes: Any) -> Seq2Seq:
    """Returns a small model in evaluation mode. If `spread` is not 0, noise with this standard deviation is added to every
    parameter, so that no bias is 0, no gain is 1, and the output is far from uniform. changes: of its settings or sizes."""
    of_run = {field: changes.pop(field) for field in Sizes._fields if field in changes}
    sizes = Sizes(SRC_VOCAB, TGT_VOCAB, shared_vocab=False, pad_id=PAD, seed=seed)._replace(**of_run)
    model = build(small_settings(name, **changes), sizes).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += spread * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def real_ids(shape: Sequence[int], vocabulary: int, seed: int) -> Tensor:
    """Returns random token ids, none of them padding."""
    ids = torch.randint(vocabulary - 1, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return ids + (ids >= PAD)


def sources(seed: int = 1, vocabulary: int = SRC_VOCAB, lengths: Sequence[int] = LENGTHS) -> Tensor:
    """Returns a batch of random sentences with the given lengths, padded on the right."""
    return pad([real_ids([n], vocabulary, 100 * seed + i).tolist() for i, n in enumerate(lengths)], PAD)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of the grammar, which share a large corpus, first, where no other worker steals them."""
    items.sort(key=lambda item: item.path.name != "test_grammar.py")


@pytest.fixture(autouse=True)
def a_single_thread() -> Iterator[None]:
    """Takes back the threads that a command with `threads=2` gave to this process."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a small corpus, a text to translate and a trained run. Tests must not change it."""
    from bad_inputs import prepare  # most test files do not need what it imports

    return prepare(tmp_path_factory.mktemp("prepared") / "base")


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """Returns a copy of `base`, which the test may change."""
    return Path(shutil.copytree(base, tmp_path / "folder"))


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Returns a vocabulary in which some words of FRENCH and of ENGLISH have several pieces."""
    return Vocabulary(Tokenizer.train(FRENCH * 3, 290), Tokenizer.train(ENGLISH * 3, 290), joint=False)


@pytest.fixture(params=sorted(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    """Returns the name of a model. A test that uses this fixture runs once for each model."""
    return str(request.param)


@pytest.fixture
def model(name: str) -> Seq2Seq:
    """Returns the small model called `name`, with noise added to every parameter."""
    return small(name, spread=0.3)


@pytest.fixture
def src() -> Tensor:
    """Returns a (5, 11) batch of source sentences with different lengths. The shortest sentence is a single token."""
    return sources()


@pytest.fixture
def tgt() -> Tensor:
    """Returns the (5, 13) target tokens of the batch, without padding."""
    return real_ids([len(LENGTHS), T], TGT_VOCAB, seed=2)


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the charts of a comparison's page, which take seconds to draw."""
    for name in ("against_baseline", "diagnosis"):
        monkeypatch.setattr(f"entente.ablation.report.{name}", lambda *_: "")
