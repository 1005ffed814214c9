"""Find the packages. A file of its own, since pyproject.toml cannot say that ``cli`` is installed by another name."""

from setuptools import find_packages, setup

COMMANDS = ["symattn_cli", *(f"symattn_cli.{name}" for name in find_packages("cli"))]

setup(packages=[*find_packages(include=["symattn", "symattn.*"]), *COMMANDS])
