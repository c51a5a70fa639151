"""The captions of Multi30k without a translation."""

import gzip
from pathlib import Path

import pytest

from captions import captions
from entente.errors import InputError


def test_captions_are_those_of_task_2_once_without_any_of_task_1(tmp_path: Path) -> None:
    texts = {
        "task1/raw/train.en": ["A dog runs."],
        "task1/raw/test_2016_flickr.en": ["Two men sit on a bench."],
        "task1/raw/test_2016_flickr.fr": ["Un chat dort."],
        "task2/raw/train.1.en": ["A cat sleeps.", "a dog runs", "Un chat dort."],
        "task2/raw/train.2.en": ["Two men sit , on a bench!", "A CAT sleeps", "A bird sings."],
        "task2/raw/test.en": ["A horse."],
    }
    for name, lines in texts.items():
        path = tmp_path / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    with pytest.raises(InputError, match="has no task1"):
        captions(tmp_path / "task1")
    assert captions(tmp_path) == ["A cat sleeps.", "Un chat dort.", "A bird sings."]
