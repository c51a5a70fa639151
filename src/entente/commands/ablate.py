"""Train variants with several seeds, all else equal, and compare them. A suite names the variants; any setting of `train` can
be overridden but init and those that a suite sets for each run: ablation, variant, seed and resume. The same command resumes a
suite that was stopped.

  entente ablate suite=quick "seeds=[1,2,3]" "baseline_seeds=[4,5,6]" jobs=2
  entente ablate "suite=[baseline,no_residual]" name=mine model=birnn
  entente ablate suite=transformer trainer.max_steps=800
"""

import sys
from pathlib import Path

import torch

from entente.ablation.report import report
from entente.ablation.runs import BASELINE, Run
from entente.ablation.suite import Job, Plan
from entente.cli import LENGTHS, Composition, compose, key_of
from entente.commands.ablations import ablation_files, changes_of
from entente.commands.settings import AblateSettings, CompareSettings, SuiteSettings
from entente.console import start_log
from entente.errors import InputError, Interrupted, Stopped
from entente.recipe import RECIPES, with_steps
from entente.settings import RunSettings
from entente.validation import suggestion, to_text, validate


def main(settings: AblateSettings, composition: Composition) -> None:
    start_log()
    threads = composition.values["trainer"]["threads"] or max(1, torch.get_num_threads() // settings.jobs)
    suite = plan(settings, composition, threads).train(settings.jobs, threads)
    try:
        report(suite, suite.directory, CompareSettings.model_fields["samples"].default)
    except Stopped as stop:
        raise Interrupted(f"{stop} in the comparison; resume with the same command") from None


def plan(settings: AblateSettings, composition: Composition, threads: int) -> Plan:
    """Composes the runs of a suite, the first seed of all variants first. Raises InputError if one cannot be trained."""
    folder, choices, trainer = composition.config_dir, composition.choices, composition.values["trainer"]
    if isinstance(settings.suite, str):
        title, suite = settings.suite, settings.suites[settings.suite]
    else:
        title, suite = "suite", SuiteSettings(variants=settings.suite)
    typed = [text for text in composition.overrides if key_of(text).partition(".")[0] not in AblateSettings.model_fields]
    reserved = [text for text in typed if key_of(text) in ("ablation", "variant", "seed", "resume")]
    problems = [f"{text}: a suite sets it for each run; leave it out, and set suite and seeds" for text in reserved]
    if (recipe := choices.get("recipe")) in RECIPES:
        problems.append(f"recipe={recipe}: its settings depend on the text, which a suite reads too late; set recipe=none")
    if BASELINE not in suite.variants:
        problems.append(f"suite={to_text(settings.suite)}: has no {BASELINE}, with which variants are compared; add it")
    if composition.values.get("init"):
        problems.append(f"init={composition.values['init']}: a suite trains its variants from the start; leave init out")
    files = ablation_files(folder)
    missing = [name for name in suite.variants if name not in files]
    if problems := problems or [f"{name}: no such ablation in configs/ablation{suggestion(name, files)}" for name in missing]:
        raise InputError(*problems)
    is_debug = choices["trainer"] == "debug"  # its settings win over those of a suite
    shared = [text for text in suite.overrides if not (is_debug and text.startswith("trainer."))]
    if any(key_of(text) in LENGTHS for text in typed):
        shared = [text for text in shared if key_of(text) not in LENGTHS]
    shared += [text for text in typed if key_of(text) != "experiment"]
    name = settings.name or f"{title}{trainer['suffix']}"
    root = Path(composition.values["output_dir"] or "").expanduser() / name
    command = [sys.executable, "-P", "-m", "entente", "train", *([f"--config-dir={folder}"] if folder else [])]
    variants = sorted(dict.fromkeys(suite.variants), key=lambda name: name != BASELINE)
    jobs: list[Job] = []
    seeds, all_seeds = (list(dict.fromkeys(each)) for each in (settings.seeds, settings.seeds + settings.baseline_seeds))
    for variant in variants:
        changed = changes_of(variant, folder)  # no override may change these, or the variant would not match its name
        overrides = [text for text in shared if key_of(text) not in changed]
        experiment = [f"experiment={choices['experiment']}"] if "experiment" in choices else []
        overrides = [*experiment, *overrides, f"ablation={variant}"]
        where = "" if variant == BASELINE else f"ablation={variant}: "  # what the baseline has, too, is not the ablation's
        run_settings = validate(RunSettings, compose("train", overrides, folder).values, where)
        if not run_settings.trainer.max_steps:
            raise InputError("all runs of a suite take the same number of steps; give trainer.max_steps=NUMBER")
        config = with_steps(run_settings, run_settings.trainer.steps).stored()
        for seed in all_seeds if variant == variants[0] else seeds:
            run_name = f"{name}/{variant}-seed{seed}"
            run = Run(root / f"{variant}-seed{seed}", {**config, "seed": seed, "name": run_name}, variant=variant)
            arguments = [f"seed={seed}", f"name={run_name}", f"trainer.threads={threads}", "resume=auto"]
            jobs.append(Job(run, [*command, *overrides, *arguments]))
    return Plan(root, variants, sorted(jobs, key=lambda job: all_seeds.index(job.run.seed)))
