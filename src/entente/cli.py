"""Turns a command line into settings, and reports all of the user's mistakes at once.

`train`, `ablate` and `data` are composed by Hydra from the files in configs/. The other verbs need no config groups: each of
their arguments is split at its first `=`, and the value of a text setting is taken as it stands. Hydra is imported only where
it is needed, because that takes as long as all the rest of `entente VERB --help`.
"""

import argparse
import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml

import entente.commands.settings as commands
from entente.console import report
from entente.errors import InputError, reason
from entente.help import help_text, overview
from entente.recipe import USUAL, for_corpus
from entente.settings import MISSING, RunSettings, Section
from entente.validation import forms_of, is_text, settings_of, suggestion, validate

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
COMPOSED = ("train", "ablate", "data")  # the verbs that Hydra composes


@dataclass(frozen=True)
class Composition:
    """A configuration composed by Hydra. values: nested plain values, with defaults. overrides: as typed. choices: the option
    of each config group. config_dir: the user's own folder with config groups, or None. recipe: the settings that
    follow from the corpus (see entente.recipe), or None before it is read."""

    values: dict[str, Any]
    overrides: list[str]
    choices: dict[str, str]
    config_dir: str | None = None
    recipe: dict[str, Any] | None = None


def main(arguments: Sequence[str]) -> None:
    """Runs a command line, without the name of the program."""
    if broken := [word for word in arguments if not word.isascii() and word != word.encode(errors="replace").decode()]:
        raise InputError(*(f"{word}: not UTF-8 text; convert it, or rename the file" for word in broken))
    verb, *rest = [word for word in arguments if word not in ("-h", "--help", "help")] or [""]
    wants_help = len(rest) + bool(verb) < len(arguments)
    if verb in VERBS:
        run(verb, rest, wants_help)
    elif verb == "--version":
        from importlib.metadata import version

        print(f"entente {version('entente')}")
    elif not verb:
        print(overview([*VERBS]), file=sys.stdout if wants_help else sys.stderr)
        sys.exit(0 if wants_help else 2)
    else:
        raise InputError(f"{verb}: choose one of {', '.join(VERBS)}{suggestion(verb, VERBS)}")


def run(verb: str, arguments: Sequence[str], wants_help: bool) -> None:
    """Checks the settings of a verb and calls `main` of its module in entente.commands, or prints help."""
    if verb not in COMPOSED:
        if wants_help:
            print(help_text(verb, [VERBS[verb]], defaults(VERBS[verb]), {}))
        else:
            call(verb, *read_arguments(verb, arguments))
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = _refuse_flag  # type: ignore[method-assign]
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=["job"])
    parser.add_argument("--config-dir")
    parser.add_argument("overrides", nargs="*")
    flags = parser.parse_intermixed_args(arguments)
    if flags.config_dir and not Path(flags.config_dir).is_dir():
        raise InputError(f"--config-dir={flags.config_dir}: no such folder")
    if flags.multirun and not wants_help:
        sweep(verb, flags.overrides, flags.config_dir)
        return
    composition, problems = compose_checked(verb, flags.overrides, flags.config_dir)
    if not wants_help and not flags.cfg:
        call(verb, composition.values, problems, composition)
    elif problems:
        raise InputError(*problems)
    elif wants_help:
        groups = {"data": options(None)["data"]} if verb == "data" else options(flags.config_dir)
        runs: list[type[Section]] = [RunSettings] if verb == "ablate" else []
        print(help_text(verb, [*runs, VERBS[verb]], composition.values, groups))
    else:
        print(yaml.safe_dump(composition.values, sort_keys=False, allow_unicode=True).rstrip())


def call(verb: str, values: dict[str, Any], problems: Sequence[str], composition: Composition | None = None) -> None:
    """Calls the command of a verb with its settings. values, problems: see `check`. composition: that of Hydra, if there is."""
    settings = check(verb, values, problems)
    command = import_module(f"entente.commands.{verb}").main
    gc.enable()  # see entente.__main__
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

    def task(config: Any) -> int:
        job = HydraConfig.get()
        try:
            composition = _composition(config, job.runtime.choices, [*job.overrides.task], config_dir)
            call(verb, composition.values, length_problems(composition.overrides), composition)
        except Exception as error:
            if (code := report(error)) is None:
                raise
            return code
        return 0

    _register()
    line = _for_hydra(overrides, config_dir, sweeps=True)
    with _hydra_errors(), hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        runner: Any = GlobalHydra.instance().hydra
        batches = runner.multirun(verb, task, line, with_log_configuration=False)
    sys.exit(next((job.return_value for batch in batches for job in batch if job.return_value), 0))


def compose(
    verb: str, overrides: Sequence[str], config_dir: str | None = None, recipe: dict[str, Any] | None = None
) -> Composition:
    """Returns the configuration that Hydra composes. Raises InputError if an override or a file is invalid. recipe: see
    Composition."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    _register(recipe)
    line, instance = _for_hydra(overrides, config_dir), GlobalHydra.instance()
    sweeping, instance.hydra = instance.hydra, None  # not None in a sweep, whose runs compose their baselines
    try:
        with _hydra_errors(), hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = hydra.compose(verb, line, return_hydra_config=True)
    finally:
        instance.hydra = sweeping
    return _composition(config, config.hydra.runtime.choices, list(overrides), config_dir, recipe)


def _composition(
    config: Any, choices: Any, overrides: list[str], config_dir: str | None, recipe: dict[str, Any] | None = None
) -> Composition:
    """Returns Hydra's configuration as plain values, without the settings that have no value (`???`)."""
    from omegaconf import OmegaConf

    def with_values(node: Any) -> Any:
        return {key: with_values(item) for key, item in node.items() if item != MISSING} if isinstance(node, dict) else node

    with _hydra_errors():
        ours = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        values: Any = OmegaConf.to_container(ours, resolve=True)
    values, keys = with_values(values), [*map(key_of, overrides)]
    trainer = values.get("trainer", {})
    if lengths := [key for key in LENGTHS if key in keys] or [key for key in LENGTHS[:1] if trainer.get("max_steps")]:
        trainer |= {key.removeprefix("trainer."): None for key in LENGTHS if key not in lengths}
    return Composition(values, overrides, {str(key): str(name) for key, name in choices.items()}, config_dir, recipe)


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
    """Returns the configuration composed from the overrides that Hydra can use, and a line for each of the others."""
    groups, problems, usable = options(config_dir), [], []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals and not key.startswith("~"):
            likely = [f"; did you mean {group}={key}?" for group, names in groups.items() if key in names]
            problems.append(f"{override}: write KEY=VALUE{likely[0] if likely else ''}")
        elif key in groups and value not in groups[key]:
            problems.append(f"{override}: choose one of {', '.join(groups[key])}{suggestion(value, groups[key])}")
        elif value == MISSING:
            problems.append(f"{override}: {MISSING} stands for a value that is not set; give another one")
        else:
            usable.append(override)
    problems += length_problems(usable)
    try:
        return compose(verb, usable, config_dir), problems
    except InputError as error:
        raise InputError(*problems, *error.problems) from error


def length_problems(overrides: Sequence[str]) -> list[str]:
    """Returns a line if the user gives more than one length of a run."""
    lengths = {key_of(text): text for text in overrides if key_of(text) in LENGTHS and not text.endswith("=null")}
    return [f"{' and '.join(lengths.values())}: give one of them"] if len(lengths) > 1 else []


def _for_hydra(overrides: Sequence[str], config_dir: str | None, sweeps: bool = False) -> list[str]:
    """Returns the overrides in Hydra's grammar. Hydra also accepts unknown keys, which `validate` then reports together with
    everything else. Text is quoted, so that it stays as typed, except in a sweep, where commas separate values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, groups = OverridesParser.create(), options(config_dir)
    line = [f"hydra.searchpath=[file://{os.path.abspath(config_dir)}]"] if config_dir else []
    schemas = {} if sweeps else _schemas(overrides)
    for override in overrides:
        key, equals, value = override.lstrip("+").partition("=")
        if equals and not key.startswith(("~", "hydra")) and key.partition("@")[0] not in groups:
            override = f"++{key}={value}"
            if key in schemas and is_text(schemas[key], value):
                override = f"++{key}={_quoted(value)}"
            else:
                try:
                    parser.parse_override(override)
                except HydraException:
                    override = f"++{key}={_quoted(value)}"
        line.append(override)
    return line


def _schemas(overrides: Iterable[str]) -> dict[str, Any]:
    """Returns the schemas of the settings of every model, every kind of corpus and every verb that Hydra composes. overrides:
    name those that the user names, such as data.extra.NAME.file."""
    typed: dict[str, Any] = {}
    for override in overrides:
        section = typed
        for name in key_of(override).split("."):
            section = section.setdefault(name, {})
    schemas = [settings_of(VERBS[verb], typed) for verb in ("ablate", "data")]
    for group in ("model", "data"):
        for kind in get_args(RunSettings.model_fields[group].annotation):
            section = {**typed.get(group, {}), "name": kind.model_fields["name"].default}
            schemas.append(settings_of(RunSettings, {**typed, group: section}))
    forms = {key: [form for each in schemas if key in each for form in forms_of(each[key])] for key in chain(*schemas)}
    return {key: {"anyOf": alternatives} for key, alternatives in forms.items()}


def _quoted(text: str) -> str:
    """Returns text in double quotes, so that neither Hydra nor OmegaConf, which replaces ${...}, changes it."""
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    escaped = re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + match[2].replace('"', r"\""), escaped)
    return f'"{escaped}"'


def options(config_dir: str | None) -> dict[str, list[str]]:
    """Returns the options of each config group: the names of the files in its folder."""
    groups: dict[str, list[str]] = {}
    for folder in [CONFIGS, Path(config_dir)] if config_dir else [CONFIGS]:
        for path in sorted(folder.glob("*/*.yaml")):
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


def defaults(kind: type[Section]) -> dict[str, Any]:
    """Returns the default values of a section, as plain values, without those that the user must set."""
    required = {name for name, field in kind.model_fields.items() if field.is_required()}
    return kind.model_construct().model_dump(mode="json", exclude=required)


def read_arguments(verb: str, arguments: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the settings given as KEY=VALUE, nested, and a line for each argument that is none. `runs` needs no key."""
    from omegaconf import OmegaConf

    schemas, texts = settings_of(VERBS[verb], {}), dict[str, Any]()
    values, problems = OmegaConf.create(), list[str]()
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if argument.startswith("-"):
            _refuse_flag(f"unknown flag: {argument}")
        elif not equals and "runs" in schemas:
            texts["runs"] = [*texts.get("runs", []), argument]
        elif not equals:
            problems.append(f"{argument}: write KEY=VALUE")
        elif key in schemas and is_text(schemas[key], text):
            texts[key] = text
        else:
            try:
                values.merge_with_dotlist([argument])
            except Exception as error:  # OmegaConf and YAML raise errors of many types
                problems.append(f"{argument}: {reason(error)}")
    plain: Any = OmegaConf.to_container(values)
    return plain | texts, problems


def _refuse_flag(message: str) -> NoReturn:
    raise InputError(f"{message}; the flags are --help, --cfg job, -m (--multirun) and --config-dir=FOLDER")


def key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+~").partition("@")[0]
