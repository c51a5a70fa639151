"""What exports to other libraries share: the packages that they need, and the refusal of models that a format cannot hold."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

from entente.errors import InputError
from entente.settings import ModelSettings
from entente.validation import to_text


def import_package(format: str, name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"format={format}: the package {name} cannot be loaded ({error}); run pip install {name}") from error


def refuse(format: str, settings: ModelSettings, any_value: Collection[str], supported: Mapping[str, Sequence[Any]]) -> None:
    """Raises InputError that names the settings of a model that a format cannot hold. any_value: the settings whose value does
    not matter. supported: the values of the others; a setting in neither is not supported."""
    if unsupported := [name for name, value in settings if name not in any_value and value not in supported.get(name, ())]:
        names = ["name"] if "name" in unsupported else unsupported  # all other settings of another model differ too
        values = ", ".join(f"model.{name}={to_text(getattr(settings, name))}" for name in names)
        raise InputError(f"format={format}: {values}: this format cannot hold such a model; see 'Export' in the README")
