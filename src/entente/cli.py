"""Turns a command line into settings, and reports all of the user's mistakes at once.

The settings of `train`, `ablate` and `data` are composed by Hydra from the files in configs/; the other verbs need no config
groups. Hydra is imported only where it is needed, because that takes as long as all the rest of `entente VERB --help`.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml

import entente.commands.settings as commands
from entente.console import report
from entente.errors import InputError, reason
from entente.help import help_text, overview
from entente.recipe import RECIPES, USUAL, for_corpus
from entente.settings import MISSING, RunSettings, Section
from entente.validation import is_text, settings_of, suggestion, validate

HERE = Path(__file__).resolve().parent
# configs/ is in the package if installed as a wheel, or at the top level of a checkout.
CONFIGS = HERE / "configs" if (HERE / "configs").is_dir() else HERE.parents[1] / "configs"
VERBS: dict[str, type[Section]] = {
    "train": RunSettings,
    "evaluate": commands.EvaluateSettings,
    "translate": commands.TranslateSettings,
    "export": commands.ExportSettings,
    "attention": commands.AttentionSettings,
    "importance": commands.ImportanceSettings,
    "page": commands.PageSettings,
    "trace": commands.TraceSettings,
    "ablate": commands.AblateSettings,
    "compare": commands.CompareSettings,
    "ablations": commands.AblationsSettings,
    "data": commands.InspectSettings,
    "corpus": commands.CorpusSettings,
}
LENGTHS = ("trainer.max_steps", "trainer.epochs", "trainer.minutes")  # how long a run is
# The verbs that Hydra composes, and the files of their config groups.
COMPOSED = {"train": "*/*.yaml", "ablate": "*/*.yaml", "data": "data/*.yaml"}


@dataclass(frozen=True)
class Composition:
    """A configuration. values: nested plain values, with defaults. overrides: as typed. choices: the option of each config
    group. config_dir: the user's own folder with config groups, or None. recipe: the settings that follow from the corpus (see
    entente.recipe), or None before it is read."""

    values: dict[str, Any]
    overrides: list[str]
    choices: dict[str, str]
    config_dir: str | None = None
    recipe: dict[str, Any] | None = None


def main(arguments: Sequence[str]) -> None:
    """Runs a command line, without the name of the program."""
    verb, *rest = [word for word in arguments if word not in ("-h", "--help", "help")] or [""]
    wants_help = len(rest) + bool(verb) < len(arguments)
    if verb in VERBS:
        run(verb, rest, wants_help)
    elif verb == "--version":
        print(f"entente {version('entente')}")
    elif not verb:
        print(overview([*VERBS]), file=sys.stdout if wants_help else sys.stderr)
        sys.exit(0 if wants_help else 2)
    else:
        raise InputError(f"{verb}: choose one of {', '.join(VERBS)}{suggestion(verb, VERBS)}")


def run(verb: str, arguments: Sequence[str], wants_help: bool) -> None:
    """Checks the settings of a verb and calls `main` of its module in entente.commands, or prints help."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)

    def refuse(message: str) -> NoReturn:
        others = ", --cfg job, -m (--multirun) and --config-dir=FOLDER" if verb in COMPOSED else ""
        raise InputError(f"{message}; the command takes --help{others}")

    parser.error = refuse  # type: ignore[method-assign]
    if verb in COMPOSED:
        parser.add_argument("-m", "--multirun", action="store_true")
        parser.add_argument("-c", "--cfg", choices=["job"])
        parser.add_argument("--config-dir")
    parser.set_defaults(multirun=False, cfg=None, config_dir=None)
    parser.add_argument("overrides", nargs="*")
    flags = parser.parse_intermixed_args(arguments)
    if flags.config_dir and not Path(flags.config_dir).is_dir():
        raise InputError(f"--config-dir={flags.config_dir}: no such folder")
    if flags.multirun and flags.cfg:
        raise InputError("--cfg job and -m: give one of them")
    if flags.multirun and not wants_help:
        sweep(verb, flags.overrides, flags.config_dir)
        return
    composition, problems = compose_checked(verb, flags.overrides, flags.config_dir)
    if not wants_help and not flags.cfg:
        call(verb, composition, problems)
    elif problems:
        raise InputError(*problems)
    elif wants_help:
        print(help_text(verb, kinds_of(verb), composition.values, options(verb, flags.config_dir)))
    else:
        if composition.choices.get("recipe") in RECIPES:
            print(f"# Vocabulary, dropout, batches and epochs will follow from the text; these are for {USUAL[0]:,} pairs.")
        print(yaml.safe_dump(composition.values, sort_keys=False, allow_unicode=True).rstrip())


def call(verb: str, composition: Composition, problems: Sequence[str]) -> None:
    """Prepares the process, and calls the command of a verb with its settings. problems: see `check`."""
    settings = check(verb, composition.values, problems)
    command = import_module(f"entente.commands.{verb}").main
    if hasattr(settings, "threads"):  # other commands need no torch, or prepare the process themselves
        import_module("entente.process").prepare_process(settings.threads, log_to_stderr=verb == "translate")
    command(settings, *([composition] if verb in ("train", "ablate") else []))


def check(verb: str, values: dict[str, Any], problems: Sequence[str]) -> Any:
    """Returns the settings of a verb. Raises InputError with all problems. problems: those found while the command line was
    read, each with its `KEY=`; what follows from them, such as a setting that is missing, is not reported."""
    consequences = tuple(f"{problem.partition('=')[0]}{end}" for problem in problems for end in ".= ")
    try:
        settings = validate(VERBS[verb], values)
    except InputError as error:
        problems = [*problems, *(line for line in error.problems if not line.startswith(consequences))]
    if problems:
        raise InputError(*problems)
    return settings


def sweep(verb: str, overrides: Sequence[str], config_dir: str | None) -> None:
    """Lets Hydra run the verb once for each combination of values. A failing run is reported, the others go on, and the exit
    code is that of the first failure."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.override_parser.overrides_parser import OverridesParser

    groups = options(verb, config_dir)
    line = [text if _is_for_hydra(text, groups) else f"++{text.lstrip('+')}" for text in overrides]
    parse, fixed = OverridesParser.create().parse_overrides, dict[str, str]()  # what a setting that is not varied was typed as

    def task(config: Any) -> int:
        values = [(each.get_key_element().lstrip("+"), each.value()) for each in parse([*HydraConfig.get().overrides.task])]
        varied = {key: f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values}
        typed = [fixed.get(key, text) for key, text in varied.items()]
        try:
            call(verb, *compose_checked(verb, typed, config_dir))
        except Exception as error:
            if (code := report(error)) is None:
                raise
            return code
        return 0

    _register()
    with _hydra_errors(), hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        of_line = zip(parse(line), overrides, strict=True)
        fixed |= {each.get_key_element().lstrip("+"): text for each, text in of_line if not each.is_sweep_override()}
        runner: Any = GlobalHydra.instance().hydra
        batches = runner.multirun(verb, task, [*_search_path(config_dir), *line], with_log_configuration=False)
    sys.exit(next((job.return_value for batch in batches for job in batch if job.return_value), 0))


def compose(
    verb: str, overrides: Sequence[str], config_dir: str | None = None, recipe: dict[str, Any] | None = None
) -> Composition:
    """Returns the configuration that Hydra composes, or that of a verb without config groups. Raises InputError if an override
    or a file is invalid. recipe: see Composition."""
    from omegaconf import OmegaConf

    if verb not in COMPOSED:
        return Composition(_merge(OmegaConf.create(defaults(VERBS[verb])), kinds_of(verb), overrides), [*overrides], {})
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    _register(recipe)
    groups, instance = options(verb, config_dir), GlobalHydra.instance()
    line = [text for text in overrides if _is_for_hydra(text, groups)]
    arguments = [text for text in overrides if text not in line]
    sweeping, instance.hydra = instance.hydra, None  # not None in a sweep
    try:
        with _hydra_errors(), hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config: Any = hydra.compose(verb, [*_search_path(config_dir), *line], return_hydra_config=True)
            choices = {str(key): str(name) for key, name in config.hydra.runtime.choices.items()}
            if "ablation" in choices:
                OmegaConf.update(config, "variant", choices["ablation"], force_add=True)
            values = _merge(OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), kinds_of(verb), arguments)
    finally:
        instance.hydra = sweeping
    keys = [key_of(text) for text in overrides if not text.endswith("=null")]
    trainer = values.get("trainer", {})
    if lengths := [key for key in LENGTHS if key in keys]:
        trainer |= {key.removeprefix("trainer."): None for key in LENGTHS if key not in lengths}
    elif len(given := [f"{key}={trainer[name]}" for key in LENGTHS if trainer.get(name := key.removeprefix("trainer."))]) > 1:
        raise InputError(f"{' and '.join(given)}: set one of them to null in your file")
    return Composition(values, list(overrides), choices, config_dir, recipe)


def _is_for_hydra(override: str, groups: Iterable[str]) -> bool:
    """Returns whether an override chooses an option of a group, removes a setting or is one of Hydra's own."""
    return override.startswith(("~", "hydra")) or key_of(override) in groups


def _search_path(config_dir: str | None) -> list[str]:
    return [f"hydra.searchpath=[file://{os.path.abspath(config_dir)}]"] if config_dir else []


def _merge(config: Any, kinds: Iterable[type[Section]], arguments: Iterable[str]) -> dict[str, Any]:
    """Returns the values of a configuration into which arguments are merged, without settings that have no value (`???`). What
    follows an argument's first `=` is YAML; a setting of text takes it as it stands, and so does any other if it is no YAML."""
    from omegaconf import OmegaConf

    def with_values(node: Any) -> Any:
        return {key: with_values(item) for key, item in node.items() if item != MISSING} if isinstance(node, dict) else node

    texts = {}
    for argument in arguments:
        key, _, text = argument.lstrip("+").partition("=")
        texts[key] = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)  # so that OmegaConf does not replace ${...}
        try:
            value: Any = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={texts[key]}"]))
        except Exception:  # OmegaConf and YAML raise errors of many types
            value = {"value": texts[key]}
        try:
            merges = isinstance(value["value"], dict) and OmegaConf.is_dict(OmegaConf.select(config, key))
            OmegaConf.update(config, key, value["value"], merge=merges)
        except (LookupError, ValueError) as error:
            raise InputError(f"{argument}: {reason(error)}") from error
    values: Any = OmegaConf.to_container(config)
    schemas = {key: schema for kind in kinds for key, schema in settings_of(kind, values).items()}
    for key, text in texts.items():
        if key in schemas and is_text(schemas[key], text):
            OmegaConf.update(config, key, text)
    return with_values(OmegaConf.to_container(config, resolve=True))


@contextmanager
def _hydra_errors() -> Iterator[None]:
    """Turns an error that Hydra finds in a command line or a file into one line, with overrides as they were typed."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise InputError(" ".join(str(error).replace("++", "").split())) from error


def compose_checked(verb: str, overrides: Sequence[str], config_dir: str | None) -> tuple[Composition, list[str]]:
    """Returns the configuration composed from the overrides that can be used, and a line for each of the others. The settings
    `runs` of some verbs need no key."""
    groups, problems, usable, runs = options(verb, config_dir), list[str](), list[str](), list[str]()
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and "runs" in VERBS[verb].model_fields:
            runs.append(override)
        elif not equals and not key.startswith("~"):
            keys = [group for group, names in groups.items() if key in names]
            keys += ["checkpoint"] if verb not in COMPOSED and "checkpoint" in VERBS[verb].model_fields else []
            likely = f"; did you mean {keys[0]}={override}?" if keys else ""
            problems.append(f"{override}: write KEY=VALUE{likely}")
        elif key in groups and value not in groups[key]:
            problems.append(f"{override}: choose one of {', '.join(groups[key])}{suggestion(value, groups[key])}")
        else:
            usable.append(override)
    lengths = {key_of(text): text for text in usable if key_of(text) in LENGTHS and not text.endswith("=null")}
    if len(lengths) > 1:
        problems.append(f"{' and '.join(lengths.values())}: give one of them")
    if verb in COMPOSED and not any(key_of(text) in ("data", "experiment") for text in usable):
        files = [text for text in usable if key_of(text).startswith("data.train") and not text.partition("=")[2].isdecimal()]
        problems += [f"{text}: for your own text, add data=files" for text in files]
    usable += [f"runs={json.dumps(runs)}"] if runs else []
    try:
        return compose(verb, usable, config_dir), problems
    except InputError as error:
        raise InputError(*problems, *error.problems) from error


def options(verb: str, config_dir: str | None) -> dict[str, list[str]]:
    """Returns the options of each config group of a verb: the names of the files in its folder."""
    groups: dict[str, list[str]] = {}
    for folder in [CONFIGS, Path(config_dir)] if config_dir else [CONFIGS]:
        for path in sorted(folder.glob(COMPOSED[verb])) if verb in COMPOSED else ():
            groups.setdefault(path.parent.name, []).append(path.stem)
    return groups


def _register(recipe: dict[str, Any] | None = None) -> None:
    """Gives Hydra the defaults of all settings, as the configs `_train`, `data/_grammar` and so on that configs/ refers to, and
    a recipe as `recipe/_corpus`."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for verb in COMPOSED:
        store.store(f"_{verb}", {key: value for key, value in defaults(VERBS[verb]).items() if key not in ("model", "data")})
    for group in ("model", "data"):
        for kind in get_args(RunSettings.model_fields[group].annotation):
            store.store(f"_{kind.model_fields['name'].default}", defaults(kind), group)
    store.store("_corpus", recipe or for_corpus(*USUAL), "recipe", package="_global_")


def kinds_of(verb: str) -> list[type[Section]]:
    """Returns the sections whose settings a verb takes: those of `ablate` are next to those of its runs."""
    return [RunSettings, VERBS[verb]] if verb == "ablate" else [VERBS[verb]]


def defaults(kind: type[Section]) -> dict[str, Any]:
    """Returns the default values of a section, as plain values, without those that the user must set."""
    required = {name for name, field in kind.model_fields.items() if field.is_required()}
    return kind.model_construct().model_dump(mode="json", exclude=required)


def key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0]
