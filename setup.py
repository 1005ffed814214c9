"""The packages, found in the tree: what pyproject.toml cannot say where a folder, ``cli``, has another name installed."""

from setuptools import find_packages, setup

COMMANDS = ["symattn_cli", *(f"symattn_cli.{name}" for name in find_packages("cli"))]

setup(packages=[*find_packages(include=["symattn", "symattn.*"]), *COMMANDS])
