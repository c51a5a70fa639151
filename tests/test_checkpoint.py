"""Tests that reading a checkpoint never runs code, and that a damaged or foreign checkpoint is refused in one line."""

import pickle
import random
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor

from conftest import small_settings
from entente import checkpoint
from entente.checkpoint import ENTRY, FORMAT, load, read, write
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.models.build import build
from entente.settings import FilesSettings, RunSettings, TokenizerSettings
from publish_model import publish

REFUSED = r"(cannot be read \(.*\)|not a checkpoint of this program, or a damaged one; use another copy, or train .* again)$"


def content(name: str, folder: Path) -> dict[str, Any]:
    """Returns the content of a small model's checkpoint, with everything that resuming needs."""
    pairs = Dataset.from_dict({"src": ["un deux trois", "trois"], "tgt": ["one two three", "three"]})
    vocabulary = Vocabulary.train(pairs, TokenizerSettings(vocab_size=300), folder)
    settings = RunSettings(name="a", seed=3, model=small_settings(name), data=FilesSettings(train="pairs.tsv"))
    model = build(settings.model, checkpoint.sizes_of(vocabulary, seed=3))
    adam = torch.optim.AdamW(model.parameters())
    sum(p.square().sum() for p in model.parameters()).backward()
    adam.step()
    return {
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        "optimizer_states": [adam.state_dict()],
        "global_step": 17,
        ENTRY: checkpoint.entry(settings, vocabulary, text="", words="un deux"),
    }


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Returns the bytes of a checkpoint."""
    folder = tmp_path_factory.mktemp("original")
    write(content("birnn", folder), folder / "original.ckpt")
    return (folder / "original.ckpt").read_bytes()


@pytest.fixture
def saved(original: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "saved.ckpt"
    path.write_bytes(original)
    return path


def unique(weights: dict[str, Tensor]) -> Iterable[Tensor]:
    """Returns the weights, of which tied ones are one."""
    return {weight.data_ptr(): weight for weight in weights.values()}.values()


def assert_equal(actual: Any, expected: Any) -> None:
    """Asserts that two nested values are equal, tensors to the last bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    written = content(name, tmp_path)
    write(written, tmp_path / "a.ckpt")
    actual = read(tmp_path / "a.ckpt")
    assert actual[ENTRY] | {"vocabulary": {}} == written[ENTRY] | {"vocabulary": {}}
    assert_equal(actual[ENTRY]["vocabulary"], written[ENTRY]["vocabulary"])
    assert_equal(actual["optimizer_states"], written["optimizer_states"])
    run = load(str(tmp_path / "a.ckpt"))
    assert_equal({f"model.{key}": value for key, value in run.model.state_dict().items()}, dict(written["state_dict"]))
    assert (run.step, run.settings.model, run.words) == (17, small_settings(name), {"un", "deux"})
    assert run.model.output.weight is run.model.tgt_embedding.weight and not run.model.training


def test_a_published_checkpoint_is_small_and_loads_in_float32(name: str, tmp_path: Path) -> None:
    written = content(name, tmp_path)
    write(written, tmp_path / "a.ckpt")
    publish(tmp_path / "a.ckpt", tmp_path / "small.ckpt")
    stored, weights = read(tmp_path / "small.ckpt")["state_dict"], list(unique(written["state_dict"]))
    assert len([*unique(stored)]) == len(weights) and {weight.dtype for weight in stored.values()} == {torch.float16}
    assert (tmp_path / "small.ckpt").stat().st_size < 0.7 * sum(weight.nbytes for weight in weights)
    original, loaded = load(str(tmp_path / "a.ckpt")), load(str(tmp_path / "small.ckpt"))
    rounded = {key: weight.half().float() for key, weight in original.model.state_dict().items()}
    assert_equal(dict(loaded.model.state_dict()), rounded)
    assert (loaded.step, loaded.settings, loaded.words) == (original.step, original.settings, original.words)
    assert loaded.model.output.weight is loaded.model.tgt_embedding.weight and not loaded.model.training


def test_a_flipped_bit_is_refused_in_one_line_or_harmless(original: bytes, saved: Path) -> None:
    """Flips a random bit at places in the data, in the header of each part, and in the directory at the end."""
    expected = read(saved)
    with zipfile.ZipFile(saved) as archive:
        headers = [part.header_offset for part in archive.infolist()]
        directory = archive.start_dir
    generator = random.Random(seed := random.randrange(2**32))
    places = {*range(0, len(original), 2003), *(start + i for start in headers for i in range(0, 60, 29))}
    places |= {*range(directory, len(original), 23)}
    refusals = 0
    for place in places:
        damaged = bytearray(original)
        damaged[place] ^= 1 << generator.randrange(8)
        saved.write_bytes(damaged)
        try:
            actual = read(saved)
        except InputError as error:
            refusals += 1
            assert len(error.problems) == 1 and str(error).startswith(f"{saved}: "), f"seed {seed}, byte {place}"
        else:
            assert_equal({**actual, ENTRY: {}}, {**expected, ENTRY: {}})
            assert_equal(actual[ENTRY].pop("vocabulary"), expected[ENTRY]["vocabulary"])
            assert actual[ENTRY].items() <= expected[ENTRY].items(), f"seed {seed}, byte {place}"
    assert refusals > len(places) / 2, f"seed {seed}"


def test_a_part_that_is_marked_as_a_folder_is_refused(saved: Path, tmp_path: Path) -> None:
    """torch does not read such a part, and leaves its tensor uninitialised."""
    with zipfile.ZipFile(saved) as good, zipfile.ZipFile(tmp_path / "marked.ckpt", "w") as marked:
        for part in good.infolist():
            stored = good.read(part)
            part.external_attr = 0x10 * part.filename.endswith("data/11")
            marked.writestr(part, stored)
    with pytest.raises(InputError, match=REFUSED):
        read(tmp_path / "marked.ckpt")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    saved.write_bytes(saved.read_bytes()[: int(share * saved.stat().st_size)])
    with pytest.raises(InputError, match=REFUSED):
        load(str(saved))


class CreatesFile:
    """An object that creates the file `victim` when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (Path("victim"),)


def test_a_pickle_that_would_create_a_file_does_not(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    victim = Path("victim")
    plain, archive, hidden = tmp_path / "plain.ckpt", tmp_path / "archive.ckpt", tmp_path / "hidden.ckpt"
    plain.write_bytes(pickle.dumps(CreatesFile()))
    torch.save({"state_dict": CreatesFile()}, archive)
    with zipfile.ZipFile(saved) as good, zipfile.ZipFile(hidden, "w") as evil:
        for part in good.infolist():
            pickled = part.filename.endswith("data.pkl")
            evil.writestr(part, pickle.dumps(CreatesFile(), 2) if pickled else good.read(part))
    for path in (plain, archive, hidden):
        with pytest.raises(InputError, match=REFUSED):
            load(str(path))
    assert not victim.exists()
    pickle.loads(plain.read_bytes())  # unlike our reader, pickle.loads runs the code
    assert victim.exists()


def edit(path: Path, key: str, value: object) -> None:
    """Sets the entry at `key` (a path with slashes) of a checkpoint to `value`, or removes it if `value` is None."""
    section = stored = read(path)
    *sections, last = key.split("/")
    for name in sections:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    torch.save(stored, path)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (ENTRY, None, REFUSED),
        (f"{ENTRY}/format", FORMAT - 1, f"its format is {FORMAT - 1}, not {FORMAT}; train the model again"),
        (f"{ENTRY}/config/model/name", "os.system", "in its configuration, model={name: os.system, "),
        (f"{ENTRY}/config/model/d_hidden", 10**9, "in its configuration, model.d_hidden=1000000000"),
        (f"{ENTRY}/config/model/d_hiden", 11, "did you mean model.d_hidden?"),
        (f"{ENTRY}/config/name", "../outside", "name=../outside: give the name of a folder under output_dir"),
        (f"{ENTRY}/config/data/src", "../outside", "data.src=../outside: give a name"),  # it becomes part of file names
        (f"{ENTRY}/config/data/test", {"/outside": None}, "give a name"),
        (f"{ENTRY}/config", None, REFUSED),
        (f"{ENTRY}/words", None, REFUSED),
        ("global_step", None, REFUSED),
        ("state_dict/model.output.weight", None, "its weights do not fit its configuration"),
        ("state_dict/model.extra", torch.zeros(3), "its weights do not fit its configuration"),
        ("state_dict/model.cell.bias_ih", torch.zeros(34), "its weights do not fit its configuration"),
        ("state_dict/model.cell.bias_ih", "zeros", REFUSED),
    ],
)
def test_foreign_and_changed_checkpoints_are_refused_in_one_line(saved: Path, key: str, value: object, line: str) -> None:
    edit(saved, key, value)
    with pytest.raises(InputError, match=line) as refusal:
        load(str(saved))
    assert len(refusal.value.problems) == 1 and str(refusal.value).startswith(f"{saved}: ")
