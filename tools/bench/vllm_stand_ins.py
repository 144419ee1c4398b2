"""Stand-ins for packages that vLLM imports, and does not use to serve a dense model.

`vllm_setup` installs this file as sitecustomize.py in vLLM's folder. Each package of NAMES
exists then, with all its submodules. Each name in them is an empty class.
"""

import sys
import types
from importlib.abc import Loader
from importlib.machinery import ModuleSpec

NAMES = ("openai_harmony", "openai", "partial_json_parser", "xgrammar", "llguidance")


def _made(thing, name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(name, (), {"__get_pydantic_core_schema__": _any})


def _any(source, handler):
    from pydantic_core import core_schema

    return core_schema.any_schema()


class _Anything(type):  # of the empty classes, which have all attributes
    __getattr__ = _made


class _Module(types.ModuleType):
    __path__: list[str] = []
    __getattr__ = _made


class _Finder(Loader):
    """It comes after all others, so a package that is installed is taken."""

    def find_spec(self, name: str, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(_Finder())
