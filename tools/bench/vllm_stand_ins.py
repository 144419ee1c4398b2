"""Stand-ins for packages that vLLM imports, and does not use to serve a dense model.

`vllm_setup` installs this file as sitecustomize.py in vLLM's folder. Each package of NAMES
exists then, with all its submodules. Each name in them is an empty class.
"""

import importlib.abc
import importlib.machinery
import sys
import types

NAMES = ("openai_harmony", "openai", "partial_json_parser", "xgrammar", "llguidance")


class _Anything(type):
    """The type of the empty classes. They have all attributes, and may be annotations."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (_Empty,), {})

    def __or__(cls, other):
        return cls

    def __ror__(cls, other):
        return other

    def __getitem__(cls, item):
        return cls


class _Empty(metaclass=_Anything):
    def __init__(self, *words, **options):
        pass

    def __call__(self, *words, **options):
        return words[0] if words else self  # so it can decorate

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _Module(types.ModuleType):
    __path__: list[str] = []
    __version__ = "0.0.0"

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (_Empty,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """It comes after all others, so a package that is installed is taken."""

    def find_spec(self, name: str, path=None, target=None):
        if name.partition(".")[0] in NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(_Finder())
