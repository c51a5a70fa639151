"""A checkpoint is read as data, and only if it is what was written."""

import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor

from entente import checkpoint
from entente.checkpoint import ENTRY, SCHEMA, checksum, load, read, write
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError

MODEL = {
    "transformer": {"name": "transformer", "d_model": 10, "n_heads": 2, "n_layers": 1, "d_ff": 14},
    "birnn": {"name": "birnn", "d_embedding": 7, "d_hidden": 11, "d_attention": 13},
}
FLIPS = 200


def content(name: str, folder: Path) -> dict[str, Any]:
    """A small model's, with all that training keeps to go on."""
    pairs = Dataset.from_dict({"src": ["un deux trois", "trois"], "tgt": ["one two three", "three"]})
    vocabulary = Vocabulary.train(pairs, vocab_size=300, type="bpe", joint=True, cache_dir=folder)
    model = checkpoint.build(MODEL[name], vocabulary, seed=3)
    adam = torch.optim.AdamW(model.parameters())
    sum(p.square().sum() for p in model.parameters()).backward()
    adam.step()
    config = {"model": MODEL[name], "seed": 3, "data": {"name": "files"}}
    return {
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        "optimizer_states": [adam.state_dict()],
        "global_step": 17,
        ENTRY: checkpoint.entry(config, vocabulary),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.ckpt"
    write(content("birnn", tmp_path), path)
    return path


@pytest.mark.parametrize("name", sorted(MODEL))
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    original = content(name, tmp_path)
    write(original, path)
    assert checksum(read(path)) == checksum(original)
    run = load(str(path))
    weights = {f"model.{key}": value for key, value in run.model.state_dict().items()}
    assert checksum(weights) == checksum(original["state_dict"])
    assert (run.step, run.config["model"], run.vocabulary.joint) == (17, MODEL[name], True)
    tied = {id(parameter) for parameter in (run.model.output.weight, run.model.tgt_embedding.weight)}  # type: ignore[union-attr]
    assert len(tied) == 1


def test_a_flipped_bit_is_refused_or_harmless(saved: Path) -> None:
    before = saved.read_bytes()
    whole = checksum(read(saved))
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    refused = 0
    for _ in range(FLIPS):
        place, bit = generator.randrange(len(before)), generator.randrange(8)
        damaged = bytearray(before)
        damaged[place] ^= 1 << bit
        saved.write_bytes(damaged)
        try:
            content = read(saved)
        except InputError as error:
            refused += 1
            assert str(saved) in str(error) and len(error.problems) == 1
        else:
            assert checksum(content) == whole, f"seed {seed}, byte {place}, bit {bit}"
    assert refused > FLIPS / 2, f"seed {seed}"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    saved.write_bytes(saved.read_bytes()[: int(share * saved.stat().st_size)])
    with pytest.raises(InputError, match="not a checkpoint that can be read, or a damaged one"):
        load(str(saved))


class Writes:
    """Pickled, it asks whoever loads it to make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_that_would_write_a_file_does_not(saved: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    plain, archive, hidden = tmp_path / "plain.ckpt", tmp_path / "archive.ckpt", tmp_path / "hidden.ckpt"
    plain.write_bytes(pickle.dumps(Writes(victim)))
    torch.save({"state_dict": Writes(victim)}, archive)
    with zipfile.ZipFile(saved) as good, zipfile.ZipFile(hidden, "w") as evil:
        for part in good.infolist():
            pickled = part.filename.endswith("data.pkl")
            evil.writestr(part, pickle.dumps(Writes(victim), 2) if pickled else good.read(part))
    for path in (plain, archive, hidden):
        with pytest.raises(InputError, match="not a checkpoint"):
            load(str(path))
    assert not victim.exists()
    pickle.loads(plain.read_bytes())  # it would have
    assert victim.exists()


def edited(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Sets a place of the content, its path written with slashes; None takes it out."""

    def edit(content: dict[str, Any]) -> None:
        *path, last = key.split("/")
        for step in path:
            content = content[step]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited(ENTRY, None), "a checkpoint of another program"),
        (edited(f"{ENTRY}/schema", SCHEMA - 1), f"written in format {SCHEMA - 1}, this version reads format {SCHEMA}"),
        (edited(f"{ENTRY}/schema", SCHEMA + 1), f"written in format {SCHEMA + 1}"),
        (edited(f"{ENTRY}/config/model/name", "os.system"), "model.name=os.system: choose one of transformer, birnn"),
        (edited(f"{ENTRY}/config/model/d_hidden", 10**9), "model.d_hidden=1000000000"),
        (edited(f"{ENTRY}/config/model/d_hidden", 4096), "the model has"),  # refused before it takes memory
        (edited(f"{ENTRY}/config/model/d_hiden", 11), "did you mean model.d_hidden?"),
        (edited(f"{ENTRY}/config/model", ["birnn"]), "of the wrong kind"),
        (edited(f"{ENTRY}/config", None), "a part of the checkpoint is missing"),
        (edited(f"{ENTRY}/vocabulary/src", torch.zeros(9, dtype=torch.uint8)), "the tokenizer is damaged"),
        (edited("state_dict", None), "a part of the checkpoint is missing"),
        (edited("state_dict/model.output.weight", None), "output.weight is missing"),
        (edited("state_dict/model.extra", torch.zeros(3)), "extra is not in the model"),
        (edited("state_dict/model.cell.bias_ih", torch.zeros(1).expand(33)), "cell.bias_ih"),  # one number that says it is 33
        (edited("state_dict/model.cell.bias_ih", torch.zeros(34)), r"is \(34,\), the model has \(33,\)"),
        (edited("state_dict/model.cell.bias_ih", "zeros"), "of the wrong kind"),
    ],
)
def test_what_is_not_ours_is_refused_in_a_line(saved: Path, edit: Callable[[dict[str, Any]], None], words: str) -> None:
    changed = read(saved)
    edit(changed)
    write(changed, saved)
    with pytest.raises(InputError, match=words) as refused:
        load(str(saved))
    assert len(refused.value.problems) == 1


def test_a_file_that_unpacks_to_more_than_it_is_is_refused(saved: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.ckpt"
    with zipfile.ZipFile(saved) as good, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as small:
        for part in good.namelist():
            small.writestr(part, good.read(part) if part.endswith("data.pkl") else bytes(10**6))
    with pytest.raises(InputError, match="it would unpack to"):
        read(packed)


def test_writing_replaces_all_or_nothing(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(content: object, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match="cannot be written .No space left on device"):
        write({}, saved)
    assert saved.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "ckpt" in path.name] == ["saved.ckpt"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": "1"}, {"a": 1}),
        ({"a": None}, {"a": "None"}),
        (["a", "b"], ["a,b"]),
        (["a", ["b"]], [["a"], "b"]),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 1, "a": 2}),
        (0.0, -0.0),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.zeros(3, dtype=torch.bfloat16), torch.tensor([0, 0, 1e-30], dtype=torch.bfloat16)),
    ],
)
def test_a_checksum_tells_values_apart(one: object, other: object) -> None:
    assert checksum(one) != checksum(other)
    assert checksum(one) == checksum(_copied(one))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else pickle.loads(pickle.dumps(value))


def test_a_checkpoint_holds_no_other_kind_of_value() -> None:
    with pytest.raises(TypeError, match="not a set"):
        checksum({"a": {1}})


def test_the_mean_of_checkpoints(tmp_path: Path) -> None:
    states = [torch.randn(5, 3, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    paths = [tmp_path / f"{i}.ckpt" for i in range(3)]
    for path, state in zip(paths, states, strict=True):
        write({ENTRY: {"schema": SCHEMA}, "state_dict": {"w": state}}, path)
    torch.testing.assert_close(checkpoint.average(paths)["w"], torch.stack(states).mean(0))
