"""Tests that public corpora are read from a folder, from a server, and in the format of the Hugging Face Hub."""

import gzip
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entente.data.corpora import Corpus, read_corpus
from entente.errors import InputError
from entente.settings import Multi30kSettings, OpusBooksSettings

RAW = Path("data", "task1", "raw")
SIZES = {"train": 13, "val": 5, "test_2016_flickr": 3, "test_2017_flickr": 2}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Returns a folder laid out like Multi30k's repository. Every line of text names its file, line number and language."""
    folder = tmp_path / "dataset" / RAW
    folder.mkdir(parents=True)
    for name, size in SIZES.items():
        for language in ("fr", "en", "de"):
            lines = "".join(f"{name} {i} {language}\n" for i in range(size))
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path / "dataset"


class Quiet(SimpleHTTPRequestHandler):
    requests = 0

    def log_message(self, *arguments: object) -> None:
        Quiet.requests += 1


@pytest.fixture
def address(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields the URL of a server that serves the repository. Downloads are stored under `tmp_path`."""
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "downloads")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(repository))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def multi30k(root: object, src: str = "fr", tgt: str = "en", tests: tuple[str, ...] = ("test_2016_flickr",)) -> Corpus:
    return read_corpus(Multi30kSettings(src=src, tgt=tgt, root=str(root), tests=tests))


def test_multi30k_from_its_folder_or_its_repository(repository: Path) -> None:
    for root in (repository, repository / RAW, f"{repository}/", f"{repository / RAW}/"):
        corpus = multi30k(root)
        assert corpus.read == {"train": 13, "valid": 5, "test_2016_flickr": 3}
        assert corpus.train[7] == {"src": "train 7 fr", "tgt": "train 7 en"}
        assert corpus.valid[2] == {"src": "val 2 fr", "tgt": "val 2 en"}
    other = multi30k(repository, "de", "fr", tests=("test_2017_flickr", "test_2016_flickr"))
    assert list(other.tests) == ["test_2017_flickr", "test_2016_flickr"]
    assert other.tests["test_2017_flickr"][1] == {"src": "test_2017_flickr 1 de", "tgt": "test_2017_flickr 1 fr"}
    assert multi30k(repository, tests=()).tests == {}


def test_multi30k_is_downloaded_from_an_address_once(repository: Path, address: str) -> None:
    local = multi30k(repository)
    for root in (address, f"{address}/data/task1/raw/"):
        assert {name: split[:] for name, split in multi30k(root).splits.items()} == {
            name: split[:] for name, split in local.splits.items()
        }
    shutil.rmtree(repository)
    requests = Quiet.requests
    assert multi30k(f"{address}/data/task1/raw").train[:] == local.train[:]
    assert Quiet.requests == requests


def test_what_multi30k_lacks_is_an_error(repository: Path, address: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"/train\.fr\.gz"):
        multi30k(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"train\.cs\.gz"):
        multi30k(repository, "en", "cs")
    unreachable = "http://127.0.0.1:9"  # the port of the discard service, on which nothing listens
    with pytest.raises(InputError, match=r"^http://127\.0\.0\.1:9/data/task1/raw/train\.fr\.gz: cannot be fetched \(.+\)$"):
        multi30k(unreachable)
    with pytest.raises(InputError, match=r"http://\S+/test_2018_flickr\.fr\.gz: cannot be fetched \(.*404"):
        multi30k(address, tests=("test_2018_flickr",))


@pytest.fixture
def books(tmp_path: Path) -> Callable[..., Path]:
    def write(path: str, first: int, last: int) -> Path:
        rows = [{"id": str(i), "translation": {"en": f"Page {i}.", "fr": f"La page {i}."}} for i in range(first, last)]
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / path)
        return tmp_path / path

    return write


SPLIT = {"valid": 11, "test": 7, "seed": 1}


def opus_books(path: object, cache_dir: Path | None = None, **changes: Any) -> Corpus:
    return read_corpus(OpusBooksSettings(**{"path": str(path), "subset": "en-fr", "split": SPLIT, **changes}), cache_dir)


def test_a_data_set_in_the_format_of_the_hub_is_split(books: Callable[..., Path]) -> None:
    file = books("books/en-fr/train-00000-of-00002.parquet", 0, 61)
    books("books/en-fr/train-00001-of-00002.parquet", 61, 101)
    corpus = opus_books(file.parent)
    assert {name: len(corpus.split(name)) for name in ("train", "valid", "test")} == {"train": 83, "valid": 11, "test": 7}
    assert corpus.read == {"train": 101}
    assert all(pair["src"] == f"La page {pair['tgt'].removeprefix('Page ')}" for pair in corpus.valid)
    assert opus_books(file).read == {"train": 61}
    back = opus_books(file.parent, src="en", tgt="fr")
    assert (back.valid["src"][:], back.valid["tgt"][:]) == (corpus.valid["tgt"][:], corpus.valid["src"][:])


def test_an_unreadable_data_set_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"^data\.path=nobody/nothing data\.subset=en-fr: neither a local path nor .* \(.+\)$"):
        opus_books("nobody/nothing")
    with pytest.raises(InputError, match=r"there is no Parquet file in "):
        opus_books(tmp_path)


def test_the_hub_is_read_by_its_library(books: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = books("books.parquet", 0, 101)

    def loaded(path: str, subset: str, split: str) -> datasets.Dataset:
        assert (path, subset, split) == ("Helsinki-NLP/opus_books", "en-fr", "train")
        features = datasets.Features({"id": datasets.Value("string"), "translation": datasets.Translation(["en", "fr"])})
        return datasets.Dataset.from_parquet(str(file), features=features, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", loaded)
    expected = opus_books(file).train[:]
    assert opus_books("Helsinki-NLP/opus_books", cache_dir=tmp_path).train[:] == expected
    monkeypatch.setattr(datasets, "load_dataset", None)
    assert opus_books("Helsinki-NLP/opus_books", cache_dir=tmp_path).train[:] == expected  # without asking the hub
