"""Any text survives encoding and decoding. The same lines give the same tokenizer, whether trained or cached."""

import itertools
import logging
import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import get_args

import pytest
import torch
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

from entente.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, Type, Vocabulary
from entente.errors import InputError

FRENCH = ["Où est l'élève ?", "Le chat noir dort.", "Elle n'a pas vu la mer.", "Il y a un garçon."] * 7
ENGLISH = ["Where is the pupil?", "The black cat sleeps.", "She has not seen the sea.", "There is a boy."] * 7
PAIRS = Dataset.from_dict({"src": FRENCH, "tgt": ENGLISH})

TYPES = get_args(Type)
TOKENIZERS = {type: Tokenizer.train(FRENCH + ENGLISH, vocab_size=331, type=type) for type in TYPES}
each_type = pytest.mark.parametrize("type", TYPES)

pieces_of_lines = st.one_of(
    st.text(max_size=11),
    st.sampled_from(["<s>", "</s>", "<unk>", "<pad>", "<0x41>", " ", "   ", "\t", "\0", "\r", "\u2028", "\u0301", "\u2585"]),
    st.sampled_from(["chat", "l'élève", "🙂", "👩‍👩‍👧", "שלום", "مرحبا", "語", "\u200b", "\ufeff", "\U000e0041", "é"]),
)
lines = st.lists(pieces_of_lines, max_size=7).map(lambda parts: unicodedata.normalize("NFC", "".join(parts)))


@each_type
@settings(max_examples=211, deadline=None)
@given(line=lines)
@example(line="  two  spaces  ")
@example(line="\0")
@example(line="<s> </s> <unk> <pad> <0x41>")
@example(line="\u0301 alone")
@example(line="▅")
def test_decoding_restores_any_line(type: str, line: str) -> None:
    line = line.replace("\u2581", "")  # this character marks spaces in pieces, so it is decoded to a space
    tokenizer = TOKENIZERS[type]
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == line
    assert not {PAD, UNK, BOS, EOS} & set(ids)
    assert tokenizer.encode_all([line, "Le chat"]) == [ids, tokenizer.encode("Le chat")]


def sampled(lines: list[str], dropout: float, seed: int) -> list[list[int]]:
    """Returns the ids of lines that are split into random pieces by the BPE tokenizer."""
    return [*TOKENIZERS["bpe"].sample(TOKENIZERS["bpe"].encode_all(lines), dropout, [seed])]


@settings(max_examples=101, deadline=None)
@given(some=st.lists(lines, max_size=5), p=st.floats(0.01, 0.99), seed=st.integers(0, 2**32 - 1))
def test_sampled_pieces_are_a_function_of_the_seed_and_decode_to_the_same_text(some: list[str], p: float, seed: int) -> None:
    some = [line.replace("\u2581", "") for line in some]
    tokenizer = TOKENIZERS["bpe"]
    ids = sampled(some, p, seed)
    assert [tokenizer.decode(one) for one in ids] == some
    assert not {PAD, UNK, BOS, EOS} & {i for one in ids for i in one}
    sampled(some, 0.5, 3)
    assert sampled(some, p, seed) == ids


def test_the_merges_of_sampling_are_those_of_sentencepiece() -> None:
    tokenizer = TOKENIZERS["bpe"]
    rare = ["Le 猫 dort.", "", "  ", "<s> </s>"]
    lines = FRENCH + ENGLISH + rare
    assert sampled(lines, 1e-12, 7) == tokenizer.encode_all(lines)
    [characters] = sampled(["Le chat"], 1 - 1e-12, 7)
    assert len(characters) == len(" Le chat") and tokenizer.decode(characters) == "Le chat"


def test_sampled_pieces_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(TOKENIZERS["bpe"].model)
    program = "import sys; from pathlib import Path; from entente.data.tokenizer import Tokenizer; "
    program += "tokenizer = Tokenizer(Path(sys.argv[1]).read_bytes()); "
    program += "print([*tokenizer.sample(tokenizer.encode_all(sys.argv[2:]), 0.3, [5])])"
    command = [sys.executable, "-c", program, str(tmp_path / "model"), *FRENCH]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == f"{sampled(FRENCH, 0.3, 5)}\n"


def test_more_dropout_gives_more_and_shorter_pieces() -> None:
    tokenizer = TOKENIZERS["bpe"]
    number = [sum(map(len, sampled(FRENCH + ENGLISH, p, seed=7))) for p in (0.0, 0.1, 0.3, 0.6, 0.9)]
    assert all(more > 1.03 * fewer for fewer, more in itertools.pairwise(number))
    assert sampled(FRENCH, 0.1, 7) != sampled(FRENCH, 0.1, 8)
    assert sampled(FRENCH, 0.0, 7) == [tokenizer.encode(line) for line in FRENCH]


@pytest.mark.parametrize("joint", [True, False])
def test_a_plain_source_is_read_as_people_type_it(tmp_path: Path, joint: bool) -> None:
    vocabulary = Vocabulary.train(PAIRS, 300, "bpe", joint, plain_source=True, cache_dir=tmp_path)
    usual = Vocabulary.train(PAIRS, 300, "bpe", joint, cache_dir=tmp_path)
    restored = Vocabulary.from_state(vocabulary.state())
    typed, typeset = "Où est l'été? Ici: là; non!", "Où est l’été  ? Ici : là ; non !"
    for one in (vocabulary, restored):
        assert one.encode_src([typed, typeset]) == usual.encode_src([typed]) * 2
        assert one.src.decode(one.src.encode(typeset)) == typed
        assert one.encode_tgt([typed, typeset]) == usual.encode_tgt([typed, typeset])
        assert (one.src.model, one.tgt.model) == (usual.src.model, usual.tgt.model)
    words = [(m.start(), m.end()) for m in re.finditer(r"\S+", typeset)]
    text, _ = vocabulary.src.spans(vocabulary.src.encode(typeset))
    assert [text[start:end] for start, end in vocabulary.src.place(typeset, words)] == typeset.replace("’", "'").split()
    assert usual.src.place(typeset, words) == words


@each_type
def test_special_ids_decode_to_nothing_but_have_labels(type: str) -> None:
    tokenizer = TOKENIZERS[type]
    ids = tokenizer.encode("Le chat €")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, UNK]) == "Le chat €"
    labels = tokenizer.pieces([PAD, UNK, BOS, EOS, *ids])
    assert labels[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert labels[4].startswith("▁")
    assert labels[-3:] == ["<0xE2>", "<0x82>", "<0xAC>"]  # the euro sign was not in the training text


@each_type
def test_the_same_lines_give_the_same_model(type: str) -> None:
    assert Tokenizer.train(FRENCH + ENGLISH, vocab_size=331, type=type).model == TOKENIZERS[type].model


@each_type
def test_long_and_unusual_training_lines_are_not_skipped(type: str) -> None:
    long = "zzzyx " * 709  # longer than the trainer's default limit
    lines = [*["a\0b", "c\td", "e\nf", "g▅h", "i▁j", ""] * 97, long]
    tokenizer = Tokenizer.train(lines, vocab_size=313, type=type)
    labels = tokenizer.pieces(range(len(tokenizer)))
    assert set("abcdefghijzyx") <= set("".join(label for label in labels if not label.startswith("<")))
    assert not set("\0\t\n▅") & set("".join(labels))
    assert tokenizer.decode(tokenizer.encode("a\0b\tc\nd▅")) == "a\0b\tc\nd▅"


@each_type
def test_one_letter_is_enough_to_train_on(type: str) -> None:
    tokenizer = Tokenizer.train(["a"], vocab_size=313, type=type)
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"


@each_type
def test_a_vocabulary_too_small_names_the_smallest_that_works(type: str) -> None:
    for size in (-1, 0, 3, 17, 270):
        with pytest.raises(InputError, match=rf"vocab_size={size} is too small: .* at least \d+ ") as refusal:
            Tokenizer.train(FRENCH, vocab_size=size, type=type)
    smallest = int(str(refusal.value).split("at least ")[1].split()[0])
    assert len(Tokenizer.train(FRENCH, vocab_size=smallest, type=type)) == smallest
    with pytest.raises(InputError, match=f"vocab_size={smallest - 1} is too small"):
        Tokenizer.train(FRENCH, vocab_size=smallest - 1, type=type)


def test_bytes_that_are_not_a_tokenizer_of_this_package_are_refused() -> None:
    with pytest.raises(InputError, match="damaged"):
        Tokenizer(b"not a model")
    with pytest.raises(InputError, match="damaged"):
        Tokenizer(b"")
    other = TOKENIZERS["bpe"].model.replace(b"<pad>", b"<bad>")
    with pytest.raises(InputError, match="not trained by this program"):
        Tokenizer(other)


@pytest.mark.parametrize("joint", [True, False])
def test_a_vocabulary_survives_a_safe_checkpoint(tmp_path: Path, joint: bool) -> None:
    vocabulary = Vocabulary.train(PAIRS, 300, "bpe", joint, tmp_path)
    torch.save(vocabulary.state(), tmp_path / "state.pt")
    restored = Vocabulary.from_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (restored.src.model, restored.tgt.model) == (vocabulary.src.model, vocabulary.tgt.model)
    assert restored.joint == joint == (restored.src is restored.tgt)
    assert (restored.src.model == restored.tgt.model) == joint


def test_separate_tokenizers_are_trained_on_their_own_side(tmp_path: Path) -> None:
    vocabulary = Vocabulary.train(PAIRS, 300, "bpe", joint=False, cache_dir=tmp_path)
    assert vocabulary.src.model == Tokenizer.train(FRENCH, 300).model
    assert vocabulary.tgt.model == Tokenizer.train(ENGLISH, 300).model
    assert vocabulary.encode_src(["chat", ""]) == [[*vocabulary.src.encode("chat"), EOS], [EOS]]
    assert vocabulary.encode_tgt(["cat", ""]) == [[BOS, *vocabulary.tgt.encode("cat"), EOS], [BOS, EOS]]


def test_a_vocabulary_too_large_for_the_text_is_reduced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # the first tokenizer is trained, the second one is read from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="entente"):
            size = len(Vocabulary.train(PAIRS, 5003, "bpe", True, tmp_path).src)
        assert size < 500
        assert [record.getMessage() for record in caplog.records] == [
            f"this text cannot fill a vocabulary of 5003 pieces; it yields only {size}"
        ]


def test_tokenizers_are_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    train = Tokenizer.train

    def counted(lines: list[str], vocab_size: int, type: str) -> Tokenizer:
        trained.append(vocab_size)
        return train(lines, vocab_size, type)

    monkeypatch.setattr(Tokenizer, "train", counted)
    first = Vocabulary.train(PAIRS, 300, "bpe", True, tmp_path)
    again = Vocabulary.train(Dataset.from_dict(PAIRS.to_dict()), 300, "bpe", True, tmp_path)
    assert again.src.model == first.src.model
    assert trained == [300]
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == first.src.model

    Vocabulary.train(PAIRS, 301, "bpe", True, tmp_path)
    Vocabulary.train(PAIRS, 300, "unigram", True, tmp_path)
    Vocabulary.train(PAIRS.select(range(7)), 301, "bpe", True, tmp_path)
    Vocabulary.train(PAIRS.select(range(1, 7)), 301, "bpe", True, tmp_path)
    assert trained == [300, 301, 300, 301, 301]

    data = bytearray(first.src.model)
    for damaged in (b"", bytes(data[:101]), flip_bit(data)):
        file.write_bytes(damaged)
        assert Vocabulary.train(PAIRS, 300, "bpe", True, tmp_path).src.model == first.src.model
        assert file.read_bytes() == first.src.model
    assert trained[5:] == [300, 300, 300]
    assert len(list(tmp_path.iterdir())) == 5


def flip_bit(data: bytearray) -> bytes:
    """Returns the data with the lowest bit of a random byte inverted."""
    place = random.Random(3).randrange(len(data))
    return bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
