"""Writes a table of each ablation's settings, the lines of code that read them, its proven effects and the laws it breaks.

python tests/variants_table.py outputs/published/grammar outputs/published/grammar/variants.md
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from broken_laws import BREAKS, BROKEN
from entente.config.schema import flat
from entente.console import escape

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "entente"
ATTENTION, TRANSFORMER, BIRNN = "models/attention.py", "models/transformer.py", "models/birnn.py"
# Maps each model and setting to the file that reads the setting and to the beginning of the line of code that does so.
READ: dict[tuple[str, str], tuple[str, str]] = {
    ("transformer", "model.residual"): (TRANSFORMER, "self.residual = nn.ModuleDict({n: Residual(keep=n in residual"),
    ("transformer", "model.norm"): (TRANSFORMER, "self.before = nn.ModuleDict({n: norm_before(norm, d_model)"),
    ("transformer", "model.activation"): (TRANSFORMER, 'gated = activation == "swiglu"'),
    ("transformer", "model.zero_init"): (TRANSFORMER, "if zero_init:"),
    ("transformer", "model.n_layers"): (TRANSFORMER, "self.encoder = nn.ModuleList("),
    ("transformer", "model.n_heads"): (ATTENTION, "self.d_k = width = d_model // n_heads"),
    ("transformer", "model.d_k"): (ATTENTION, "self.d_k = width = d_model // n_heads"),
    ("transformer", "model.scale"): (ATTENTION, "factor: float | Tensor = key.size(-1) ** -0.5 if self.scale"),
    ("transformer", "model.score"): (ATTENTION, "self.score: nn.Module = {"),
    ("transformer", "model.projections"): (ATTENTION, "nn.Linear(d_model, n_heads * width) if name in projections"),
    ("transformer", "model.softmax"): (ATTENTION, "self.axis = AXIS[softmax]"),
    ("transformer", "model.mask_value"): (ATTENTION, "self.mask_value = -math.inf if mask_value is None"),
    ("transformer", "model.positions"): (TRANSFORMER, 'if self.positions == "sinusoidal"'),
    ("transformer", "model.sublayers"): (TRANSFORMER, "self.present = tuple(name for name in self.names if name in sublayers)"),
    ("transformer", "model.mask_padding"): (TRANSFORMER, "src_mask = real if self.mask_padding"),
    ("transformer", "model.mask_future"): (TRANSFORMER, "needs_mask = self.mask_future"),
    ("transformer", "model.tied"): (TRANSFORMER, "if tied:"),
    ("transformer", "model.dropout"): (TRANSFORMER, "self.dropout = nn.Dropout(dropout)"),
    ("birnn", "model.score"): (BIRNN, "self.attention: Any = {"),
    ("birnn", "model.cell"): (BIRNN, 'network, step = (nn.LSTM, nn.LSTMCell) if cell == "lstm"'),
    ("birnn", "model.bidirectional"): (BIRNN, "self.encoder = network(d_embedding, d_hidden"),
    ("birnn", "model.readout"): (BIRNN, 'self.residual = Residual(keep=readout == "residual"'),
    ("birnn", "model.mask_padding"): (BIRNN, "if not self.mask_padding"),
    ("birnn", "model.softmax"): (ATTENTION, "self.axis = AXIS[softmax]"),
    ("birnn", "model.tied"): (BIRNN, "if tied:"),
    ("birnn", "model.dropout"): (BIRNN, "self.dropout = nn.Dropout(dropout)"),
} | {
    (model, key): (file, line)
    for model in ("transformer", "birnn")
    for key, file, line in (
        (
            "optim.label_smoothing",
            "training/translator.py",
            "loss, tokens = batch_loss(self.model, batch, self.optim.label_smoothing)",
        ),
        ("optim.warmup", "training/optimiser.py", "if step < self.warmup"),
    )
}


def settings(variant: str) -> dict[str, object]:
    """Returns the model and optimiser settings that an ablation changes."""
    content = yaml.safe_load((ROOT / "configs" / "ablation" / f"{variant}.yaml").read_text(encoding="utf-8"))
    parts = {part: content[part] for part in ("model", "optim") if part in content}
    return {key: value for key, value in flat(parts) if "." in key}


def line_that_reads(model: str, key: str) -> str:
    """Returns the line of code that reads a setting, as FILE:LINE. Raises ValueError unless there is exactly one."""
    file, beginning = READ[model, key]
    lines = (SOURCE / file).read_text(encoding="utf-8").splitlines()
    [number] = [i for i, line in enumerate(lines, 1) if line.strip().startswith(beginning)]
    return f"{file}:{number}"


def row(proof: dict[str, Any], model: str, variant: str) -> list[str]:
    values = settings(variant)
    return [
        f"`{variant}`",
        "<br>".join(f"`{key}: {json.dumps(value)}`" for key, value in values.items()),
        "<br>".join(dict.fromkeys(f"`{line_that_reads(model, key)}`" for key in values)),
        "<br>".join(f"{aspect}: {proof[aspect]}" for aspect in proof["differs"]),
        ", ".join(sorted(BREAKS.get((model, variant), set()))) or "none",
    ]


def table(published: Path, model: str) -> str:
    """Returns a table of the variants of a model in the published suite, without the baseline."""
    with gzip.open(published / model / "runs.jsonl.gz", "rt", encoding="utf-8") as lines:
        runs = map(json.loads, lines)
        proofs = {run["variant"]: run["proof"] for run in runs if run["seed"] == 1 and run["proof"]["differs"]}
    rows = [row(proofs[variant], model, variant) for name, variant in sorted(BROKEN) if name == model and variant in proofs]
    headings = ["variant", "sets", "read in src/entente/", "proof: what differs from the baseline", "laws broken"]
    return escape.table(headings, rows)


def main(published: Path, output: Path) -> None:
    said = [
        "# What each ablation is",
        "The proof compares the baseline and the variant, built from the same seed, on one batch before training. The laws are "
        "those of `tests/test_variants.py`, which asserts that the variant breaks the listed laws and keeps all others.",
    ]
    for model in ("transformer", "birnn"):
        if (published / model).is_dir():
            said += [f"## {model}", table(published, model)]
    output.write_text("\n\n".join(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
