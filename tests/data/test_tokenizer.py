"""Any text survives encoding and decoding, and the same lines give the same tokenizer."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st

import entente.data.tokenizer as module
from entente.data.corpora import Corpus, read_corpus
from entente.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, Vocabulary
from entente.errors import InputError
from entente.settings import FilesSettings, TokenizerSettings

FRENCH = ["Où est l'élève ?", "Le chat noir dort.", "Elle n'a pas vu la mer.", "Il y a un garçon."] * 7
ENGLISH = ["Where is the pupil?", "The black cat sleeps.", "She has not seen the sea.", "There is a boy."] * 7
PAIRS = Dataset.from_dict({"src": FRENCH, "tgt": ENGLISH})

TYPES = ("bpe", "unigram")
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


def trained(joint: bool = True, vocab_size: int = 300, **changes: Any) -> Vocabulary:
    return Vocabulary.train(PAIRS, TokenizerSettings(vocab_size=vocab_size, joint=joint, **changes))


@pytest.mark.parametrize("joint", [True, False])
def test_a_plain_source_is_read_as_people_type_it(joint: bool) -> None:
    vocabulary, usual = trained(joint, plain_source=True), trained(joint)
    typed, typeset = "Où est l'été? Ici: là; non!", "Où est l’été  ? Ici : là ; non !"
    for plain in (vocabulary, Vocabulary.from_state(vocabulary.state())):
        assert plain.encode_src([typed, typeset]) == usual.encode_src([typed]) * 2
        assert plain.src.decode(plain.src.encode(typeset)) == typed
        assert plain.encode_tgt([typed, typeset]) == usual.encode_tgt([typed, typeset])
        assert (plain.src.model, plain.tgt.model) == (usual.src.model, usual.tgt.model)
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


@pytest.mark.parametrize(("sample", "step"), [(56, 1), (55, 2), (10, 6)])
def test_a_large_corpus_is_sampled_evenly(sample: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, read = PAIRS.select(range(27)).add_item({"src": "fin", "tgt": "end"}), list[str]()

    def train(lines: Iterable[str], *_: object) -> Tokenizer:
        read.extend(lines)
        return TOKENIZERS["bpe"]

    monkeypatch.setattr(Tokenizer, "train", train)
    monkeypatch.setattr(module, "SAMPLE", sample)
    Vocabulary.train(pairs, TokenizerSettings(vocab_size=331))
    assert read == [*FRENCH[:27], "fin", *ENGLISH[:27], "end"][::step] and len(read) <= sample


@each_type
def test_a_vocabulary_too_small_names_the_smallest_that_works(type: str) -> None:
    for size in (-1, 0, 3, 17, 270):
        with pytest.raises(InputError, match=rf"vocab_size={size} is too small: .* at least \d+ ") as refusal:
            Tokenizer.train(FRENCH, vocab_size=size, type=type)
    smallest = int(str(refusal.value).split("at least ")[1].split()[0])
    assert len(Tokenizer.train(FRENCH, vocab_size=smallest, type=type)) == smallest
    with pytest.raises(InputError, match=f"vocab_size={smallest - 1} is too small"):
        Tokenizer.train(FRENCH, vocab_size=smallest - 1, type=type)


@pytest.mark.parametrize("joint", [True, False])
def test_a_vocabulary_survives_a_safe_checkpoint(tmp_path: Path, joint: bool) -> None:
    vocabulary = trained(joint)
    torch.save(vocabulary.state(), tmp_path / "state.pt")
    restored = Vocabulary.from_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (restored.src.model, restored.tgt.model) == (vocabulary.src.model, vocabulary.tgt.model)
    assert restored.joint == joint == (restored.src is restored.tgt) == (restored.src.model == restored.tgt.model)


def test_a_translation_is_one_line_without_tabs() -> None:
    separators = [sign for sign in map(chr, range(0x3000)) if sign == "\t" or len(f"a{sign}b".splitlines()) > 1]
    tokenizer = Tokenizer.train(["a b c"], 264)
    vocabulary = Vocabulary(tokenizer, tokenizer, joint=True)
    assert len(separators) == 11
    assert vocabulary.text(tokenizer.encode("".join(f"a{sign}{sign}b" for sign in separators))) == "a b" * 11


def test_a_tag_is_one_piece_in_front_of_the_sources_of_its_text(tmp_path: Path) -> None:
    texts = {name: [(f"{name} le chat {i}", f"{name} the cat {i}") for i in range(23)] for name in ("train", "more")}
    texts["more"] += [(texts["train"][i][0], f"another cat {i}") for i in range(23)] + [("", "an orphan")]
    for name, pairs in texts.items():
        (tmp_path / f"{name}.tsv").write_text("fr\ten\n" + "".join(f"{src}\t{tgt}\n" for src, tgt in pairs))

    def read(tag: str | None, **changes: Any) -> Corpus:
        extra = {"made": {"file": "more.tsv", "tag": tag}}
        return read_corpus(
            FilesSettings(root=str(tmp_path), train="train.tsv", extra=extra, split={"valid": 5, "test": 3}, **changes)
        )

    plain, corpus = read(None), read("bt")
    n = 23 - 5 - 3
    assert corpus.tags == ("<bt>",) and corpus.dropped == plain.dropped == {"train: empty": 1, "train: held-out sentence": 8}
    assert corpus.train["tgt"][:] == plain.train["tgt"][:] and corpus.train["src"][:n] == plain.train["src"][:n]
    assert corpus.train["src"][n:] == [f"<bt> {src}" for src in plain.train["src"][n:]]
    for joint in (True, False):
        vocabulary = Vocabulary.train(corpus.train, TokenizerSettings(vocab_size=300, joint=joint), tmp_path, corpus.tags)
        alone, tagged = vocabulary.encode_src(["le chat", "<bt> le chat"])
        assert vocabulary.src.pieces(tagged)[1] == "<bt>", "after the marker of the line's first word"
        assert tagged[-len(alone) :] == alone and vocabulary.src.decode(tagged[:-1]) == "<bt> le chat"
    for tag, changes in (("unk", {}), ("bt", {"batch": {"both_directions": 1}})):
        with pytest.raises(InputError, match=f"tag={tag}"):
            read(tag, **changes)
