"""Packages configs/ as `entente.configs`. All other settings are in pyproject.toml."""

from setuptools import find_namespace_packages, setup

setup(packages=[*find_namespace_packages("src"), "entente.configs"], package_dir={"": "src", "entente.configs": "configs"})
