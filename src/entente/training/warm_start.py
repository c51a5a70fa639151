"""Starts a run from the weights, the model settings and the tokenizer of another one, its ancestor (`init`)."""

from collections.abc import Iterable
from pathlib import Path

from entente import checkpoint
from entente.console import log
from entente.errors import InputError
from entente.settings import RunSettings
from entente.validation import flat, to_text, validate

FREE = ("model.dropout", "model.attention_dropout")  # settings of the model that may differ from the ancestor's


def with_ancestor(settings: RunSettings, model: str, fixed: Iterable[str]) -> RunSettings:
    """Returns the settings with the ancestor's model and tokenizer. model: the option of the config group `model`. fixed: the
    keys that the user or an ablation has set. Raises InputError for those that contradict the ancestor's."""
    ancestor = checkpoint.load(str(settings.init)).settings.stored()
    values = settings.stored()
    requested = dict(flat(values))
    dropouts = {key.partition(".")[2]: requested[key] for key in FREE if key in requested and key in dict(flat(ancestor))}
    values["model"] = {**ancestor["model"], **dropouts}
    values["data"]["tokenizer"] = ancestor["data"]["tokenizer"]
    adopted = dict(flat(values))
    if model != (name := ancestor["model"]["name"]):
        raise InputError(f"model={model}: the model of init={settings.init} is a {name}; give model={name}")
    problems = [
        f"{key}={to_text(requested[key])}: the model and the tokenizer of init={settings.init} have "
        f"{to_text(adopted.get(key))}; leave {key} out"
        for key in fixed
        if key.startswith(("model.", "data.tokenizer."))
        if requested.get(key) != adopted.get(key)
    ]
    if problems:
        raise InputError(*problems)
    return validate(RunSettings, {**values, "resume": settings.resume}, where=f"init={settings.init}: ")


def load_ancestor(settings: RunSettings, resumed: Path | None) -> checkpoint.TrainedRun:
    """Returns the ancestor of a run, with an entry `init` in its provenance that names it. A run that resumes from the
    checkpoint `resumed` takes all of it from there, so that `resume=DIRECTORY` does not need the ancestor."""
    run = checkpoint.load(str(resumed or settings.init))
    if not resumed:
        run.provenance["init"] = f"{settings.init}: {run.summary()}, commit {run.provenance['commit']}"
    log.info("init=%s", run.provenance["init"])
    return run
