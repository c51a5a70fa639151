"""The repaired Transformers of scripts/residual.py keep the laws of a translation model, and a run of one can be tabulated."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

import residual
from conftest import PAD, SIZES, SRC_VOCAB, TGT_VOCAB, small, small_settings
from entente.models import build
from entente.models.seq2seq import Sizes, select
from numerics import close, logits, logits_in_chunks
from residual import REPAIRS, Repaired


def repaired(repair: str, **changes: int) -> Repaired:
    settings = small_settings("transformer", residual=(), **changes)
    return Repaired(REPAIRS[repair], Sizes(SRC_VOCAB, TGT_VOCAB, False, PAD, seed=5), settings).double().eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_repaired_model_decodes_in_chunks_ignores_padding_and_hides_the_future(repair: str, src: Tensor, tgt: Tensor) -> None:
    model = repaired(repair)
    expected = logits(model, src, tgt)
    close(logits_in_chunks(model, src, tgt, [1] * tgt.size(1)), expected)
    close(logits(model, torch.nn.functional.pad(src, (0, 3), value=PAD), tgt), expected)
    changed = tgt.clone()
    changed[:, 4] = (changed[:, 4] + 1) % TGT_VOCAB
    close(logits(model, src, changed)[:, :4], expected[:, :4])
    beams = torch.arange(len(src)).repeat_interleave(2)
    state = model.encode(src)
    hidden, _ = model.decode(tgt[beams], state._replace(written=select(state.written, beams)))
    close(model.output(hidden), expected[beams])


def test_repairs_share_the_initial_values_of_the_model_they_repair() -> None:
    plain = dict(small("transformer", residual=()).named_parameters())
    for repair in ("concatenated", "merged"):
        ours = dict(repaired(repair).named_parameters())
        shared = ours.keys() & plain.keys()
        assert len(shared) > 0.6 * len(plain) and all(torch.equal(ours[name], plain[name]) for name in shared)
        assert (ours.keys() - plain.keys() == set()) == (repair == "merged")


@pytest.mark.parametrize("half", ["encoder", "decoder"])
def test_a_repair_of_one_half_leaves_the_initial_values_of_the_other(half: str) -> None:
    parameters, of_both, of_neither = (dict(repaired(name).named_parameters()) for name in (half, "unturned", "concatenated"))
    for name, value in parameters.items():
        assert torch.equal(value, (of_both if name.startswith(half) else of_neither)[name]), name
    changed = {name.partition(".")[0] for name, value in parameters.items() if not torch.equal(value, of_neither[name])}
    assert changed == {half}


def test_conditioned_self_attention_starts_with_each_position_attending_to_itself() -> None:
    x = torch.nn.functional.layer_norm(torch.randn(2, 7, SIZES["transformer"]["d_model"]), [SIZES["transformer"]["d_model"]])
    for repair, is_sharp in (("none", False), ("conditioned", True)):
        attention = repaired(repair).float().encoder[0].self_attention  # type: ignore[union-attr]
        scores = attention.score(*(attention._split(part(x)) for part in (attention.query, attention.key)), None)  # type: ignore
        own = scores.softmax(-1).diagonal(dim1=-2, dim2=-1)
        assert bool(own.mean() > 0.8) == is_sharp


def test_an_isometric_feed_forward_network_starts_as_the_identity() -> None:
    x = torch.randn(2, 7, SIZES["transformer"]["d_model"])
    block = repaired("isometric", d_ff=2 * x.size(-1) + 1).float().decoder[0]
    torch.testing.assert_close(block.ff(x), x)  # type: ignore[operator]
    for pair in ((x, 0 * x), (0 * x, x)):  # a rotation of each
        torch.testing.assert_close(block.residual["cross"](*pair).norm(dim=-1), x.norm(dim=-1))  # type: ignore[index]


@pytest.mark.slow
def test_a_run_is_trained_and_its_last_word_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(build.MODELS, "transformer", None)
    residual.use("merged")
    overrides = ["data.train=211", "data.valid=23", "data.test=5", "trainer.validate_every=4", "views.diagnosis=2"]
    overrides += ["views.attention=false", "views.heads=0"]
    residual.train(["model.residual=[]", "name=residual/merged-4-seed2", "trainer.max_steps=4", "model.n_layers=2", *overrides])
    runs, file = tmp_path / "outputs" / "residual", tmp_path / "published.jsonl.xz"
    rows = residual.collect(runs, file)
    shutil.rmtree(runs)
    assert residual.collect(runs, file) == json.loads(json.dumps(rows)), "a result outlives the directory of its run"
    row = residual.table(rows).splitlines()[-1]
    entropy, own, shares = ([float(share) for share in cell.split()] for cell in row.strip("| ").split(" | ")[-3:])
    assert row.startswith("| 2 | 4 | `merged` | fails | learns | fails | 1 | ")
    assert len(entropy) == len(own) == len(shares) == 2 and all(0 < share < 1 for share in entropy + own + shares)
    [axes] = residual.draw(rows).axes
    assert axes.lines[0].get_xdata().tolist() == [4]
