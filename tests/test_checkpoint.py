"""Tests that reading a checkpoint never runs code, and that a checkpoint altered since it was written is refused."""

import contextlib
import os
import pickle
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor

from bad_inputs import CreatesFile
from entente import checkpoint
from entente.checkpoint import CHECKSUM, ENTRY, SCHEMA, checksum, load, read, write
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError

MODEL = {
    "transformer": {"name": "transformer", "d_model": 10, "n_heads": 2, "n_layers": 1, "d_ff": 14},
    "birnn": {"name": "birnn", "d_embedding": 7, "d_hidden": 11, "d_attention": 13},
}
FLIPS = 200


def content(name: str, folder: Path) -> dict[str, Any]:
    """Returns the content of a small model's checkpoint, with everything that resuming needs."""
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
        ENTRY: checkpoint.entry(config, vocabulary, text="", words=""),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.ckpt"
    write(content("birnn", tmp_path), path)
    return path


@pytest.mark.parametrize(("part", "line"), [("text", "validation text has changed"), ("vocabulary", "its vocabulary differs")])
def test_a_checkpoint_of_another_text_or_vocabulary_is_refused(part: str, line: str, saved: Path) -> None:
    stored = read(saved)[ENTRY]
    checkpoint.refuse_other_text(saved, stored, stored)
    with pytest.raises(InputError, match=rf"saved\.ckpt: .*{line}"):
        checkpoint.refuse_other_text(saved, stored, {**stored, part: "other"})


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
    with pytest.raises(InputError, match="not a checkpoint, or a damaged one"):
        load(str(saved))


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
        with pytest.raises(InputError, match="not a (readable )?checkpoint"):
            load(str(path))
    assert not victim.exists()
    pickle.loads(plain.read_bytes())  # unlike our reader, pickle.loads runs the code
    assert victim.exists()


def setter(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Returns a function that sets the entry at `key` (a path with slashes) to `value`, or removes it if `value` is None."""

    def edit(content: dict[str, Any]) -> None:
        *path, last = key.split("/")
        for step in path:
            content = content[step]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return edit


def forge(content: Any, path: Path) -> None:
    """Writes `content` to `path` as an attacker would, with a valid checksum if one can be computed."""
    try:
        right = checksum(content)
    except Exception:  # `content` can be anything, so checksum() can raise anything
        right = "0" * 64
    with path.open("wb") as file:
        torch.save({**content, CHECKSUM: right} if isinstance(content, dict) else content, file)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (setter(ENTRY, None), "a checkpoint from another program"),
        (setter(f"{ENTRY}/schema", SCHEMA - 1), f"its format is {SCHEMA - 1}, but this version reads format {SCHEMA}"),
        (setter(f"{ENTRY}/schema", SCHEMA + 1), f"its format is {SCHEMA + 1}"),
        (setter(f"{ENTRY}/config/model/name", "os.system"), "model.name=os.system: choose one of birnn, transformer"),
        (setter(f"{ENTRY}/config/model/d_hidden", 10**9), "model.d_hidden=1000000000"),
        (setter(f"{ENTRY}/config/model/d_hidden", 4096), "but the model needs"),  # refused before memory is allocated
        (setter(f"{ENTRY}/config/model/d_hiden", 11), "did you mean model.d_hidden?"),
        (setter(f"{ENTRY}/config/model", ["birnn"]), "is missing or invalid"),
        (setter(f"{ENTRY}/config", None), "a part of the checkpoint is missing"),
        (setter(f"{ENTRY}/vocabulary/src", torch.zeros(9, dtype=torch.uint8)), "the tokenizer is damaged"),
        (setter("state_dict", None), "a part of the checkpoint is missing"),
        (setter("state_dict/model.output.weight", None), "output.weight is missing"),
        (setter("state_dict/model.extra", torch.zeros(3)), "extra is not in the model"),
        (setter("state_dict/model.cell.bias_ih", torch.zeros(1).expand(33)), "cell.bias_ih"),  # 33 elements share one number
        (setter("state_dict/model.cell.bias_ih", torch.zeros(34)), r"has shape \(34,\), but the model needs \(33,\)"),
        (setter("state_dict/model.cell.bias_ih", "zeros"), "is missing or invalid"),
        (setter(f"{ENTRY}/schema", "x" * 10**6), f"its format is x{{77}}\\.\\.\\., but this version reads format {SCHEMA}"),
        (setter(f"{ENTRY}/schema", torch.tensor([1, 2])), "its format is Tensor"),
        (setter(f"{ENTRY}/config/model/name", ["birnn"]), r"model\.name=\[birnn\]: choose one of"),
        (setter(f"{ENTRY}/config", ["model"]), "is missing or invalid"),
        (setter(f"{ENTRY}/config/model", 7), "is missing or invalid"),
        (setter("global_step", "\x1b[2J"), "is missing or invalid"),
        (setter(f"{ENTRY}/vocabulary/src", torch.zeros(1, dtype=torch.uint8).expand(10**12)), "not a dense tensor"),
        (setter(f"{ENTRY}/vocabulary/src", torch.zeros(1, dtype=torch.uint8).as_strided((10**12, 1), (0, 1))), "not a dense"),
    ],
)
def test_foreign_and_changed_checkpoints_are_refused_in_one_line(
    saved: Path, edit: Callable[[dict[str, Any]], None], words: str
) -> None:
    changed = read(saved)
    edit(changed)
    forge(changed, saved)
    with pytest.raises(InputError, match=words) as refused:
        load(str(saved))
    assert len(refused.value.problems) == 1


def content_with_shared_memory(n_layers: int, d_ff: int, folder: Path) -> dict[str, Any]:
    """Returns the content of a Transformer checkpoint whose weights all share one block of memory."""
    pairs = Dataset.from_dict({"src": ["un deux trois", "trois"], "tgt": ["one two three", "three"]})
    vocabulary = Vocabulary.train(pairs, vocab_size=300, type="bpe", joint=True, cache_dir=folder)
    config = {**MODEL["transformer"], "n_layers": n_layers, "d_ff": d_ff}
    with torch.device("meta"):
        planned = checkpoint.build(config, vocabulary, seed=3).state_dict()
    memory = torch.zeros(max(tensor.numel() for tensor in planned.values()))
    return {
        "state_dict": {f"model.{name}": memory[: one.numel()].view(one.shape) for name, one in planned.items()},
        "global_step": 17,
        ENTRY: checkpoint.entry({"model": config, "seed": 3}, vocabulary, text="", words=""),
    }


def test_weights_that_share_memory_are_refused_before_the_model_allocates_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shared.ckpt"
    forge(content_with_shared_memory(11, 65536, tmp_path), path)
    built = []
    build = checkpoint.build
    monkeypatch.setattr(checkpoint, "build", lambda *given: built.append(build(*given)) or built[-1])
    with pytest.raises(InputError, match=r"expand to far more than the size of the file|bytes of weights, but the file holds"):
        load(str(path))
    assert all(one.output.weight.is_meta for one in built)


def test_a_model_beyond_memory_is_refused_before_it_is_made(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    with pytest.raises(InputError, match=r"model: its [\d,]+ parameters take 0 GB, but the device has 0 GB; make it smaller"):
        load(str(saved))


def test_a_list_that_repeats_itself_exponentially_is_refused(saved: Path) -> None:
    bomb: Any = "x"
    for _ in range(30):
        bomb = [bomb] * 9
    evil = {**read(saved), "loops": bomb}
    torch.save({**evil, CHECKSUM: "0" * 64}, saved)
    with pytest.raises(InputError, match="far more than the size of the file"):
        read(saved)


class Reserves:
    """Allocates `size` bytes when an instance is unpickled, even by torch.load(weights_only=True)."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return bytearray, (self.size,)


def cyclic() -> list[Any]:
    one: list[Any] = [1]
    one.append(one)
    return one


def deep() -> Any:
    one: Any = 0
    for _ in range(300):
        one = [one]
    return one


ODD_VALUES: dict[str, Callable[[], Any]] = {
    "a set": lambda: {1, 2},
    "complex": lambda: 1j,
    "bytes": lambda: b"\x00\xff",
    "a bytearray": lambda: bytearray(b"\x00"),
    "a bytearray of any size": lambda: Reserves(10**7),
    "a dtype": lambda: torch.float32,
    "a size": lambda: torch.Size([3]),
    "a device": lambda: torch.device("cpu"),
    "a counter": lambda: Counter("aab"),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(3)),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "a quantized tensor": lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
    "a complex tensor": lambda: torch.zeros(3, dtype=torch.complex64),
    "a meta tensor": lambda: torch.zeros(3, device="meta"),
    "a tensor with gradient": lambda: torch.zeros(3, requires_grad=True),
    "an expanded tensor": lambda: torch.zeros(1).expand(10**9),
    "a transposed tensor": lambda: torch.zeros(2, 3).T,
    "a tensor": lambda: torch.zeros(2, 3),
    "an empty tensor": lambda: torch.zeros(0),
    "keys that are numbers": lambda: {0.5: 1, None: 2},
    "keys that are tuples": lambda: {(1, 2): 3},
    "keys that are tensors": lambda: {torch.zeros(2): 3},
    "a cyclic list": cyclic,
    "a deep list": deep,
    "a long number": lambda: 10**9000,
    "a large number": lambda: 2**70,
    "NaN": lambda: float("nan"),
    "a lone surrogate": lambda: "\ud800",
    "an escape sequence": lambda: "\x1b]0;owned\x07",
    "long text": lambda: "x" * 10**5,
    "nothing": lambda: None,
    "true": lambda: True,
    "a list": lambda: [1, "a"],
    "an empty list": lambda: [],
    "an empty mapping": lambda: {},
}
# Paths to entries of a checkpoint, as tuples of nested keys. The test below sets each of these entries to odd values.
PLACES = [
    (),
    (ENTRY,),
    (ENTRY, "schema"),
    (ENTRY, "config"),
    (ENTRY, "config", "model"),
    (ENTRY, "config", "model", "name"),
    (ENTRY, "config", "model", "d_hidden"),
    (ENTRY, "config", "seed"),
    (ENTRY, "vocabulary"),
    (ENTRY, "vocabulary", "src"),
    (ENTRY, "vocabulary", "joint"),
    (ENTRY, "provenance"),
    ("state_dict",),
    ("state_dict", "model.cell.bias_ih"),
    ("optimizer_states",),
    ("global_step",),
    (CHECKSUM,),
    (7,),
]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Returns a folder for checkpoints and the content of a valid checkpoint."""
    folder = tmp_path_factory.mktemp("genuine")
    return folder, content("birnn", folder)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("what", ODD_VALUES)
def test_any_value_anywhere_in_a_checkpoint_is_refused_in_one_line_or_harmless(
    what: str, genuine: tuple[Path, dict[str, Any]]
) -> None:
    folder, original = genuine
    path = folder / "odd.ckpt"
    for place in PLACES:
        changed = _with(original, place, ODD_VALUES[what]())
        with contextlib.suppress(UnicodeEncodeError, ValueError, TypeError):  # raised by torch.save for some values
            path.unlink(missing_ok=True)
            forge(changed, path)
        if not path.exists():
            continue
        for reader in (lambda: read(path), lambda: load(str(path))):
            try:
                reader()
            except InputError as error:
                assert len(error.problems) == 1 and len(str(error)) < 600, place
                assert str(error).isprintable(), place


def _with(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Returns a copy of `whole` with the entry at `place` (a tuple of nested keys) set to `value`."""
    if not place:
        return value
    return {**whole, place[0]: _with(whole.get(place[0]), place[1:], value)}


def test_a_compressed_archive_is_refused(saved: Path, tmp_path: Path) -> None:
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
    assert checksum(one) == checksum(_copy(one))


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else pickle.loads(pickle.dumps(value))


def test_a_checkpoint_holds_no_other_kind_of_value() -> None:
    with pytest.raises(TypeError, match="but a is a set"):
        checksum({"a": {1}})


def test_the_mean_of_checkpoints(tmp_path: Path) -> None:
    states = [torch.randn(5, 3, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    paths = [tmp_path / f"{i}.ckpt" for i in range(3)]
    for path, state in zip(paths, states, strict=True):
        write({ENTRY: {"schema": SCHEMA}, "state_dict": {"w": state}}, path)
    torch.testing.assert_close(checkpoint.average(paths)["w"], torch.stack(states).mean(0))
