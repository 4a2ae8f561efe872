"""Find the blocks of a model whose author names none: the modules that it repeats.

Pure: looks at modules and the shapes of their parameters, runs nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
_Kind = type[nn.Module] | tuple[object, ...]
_NUMBERED = re.compile(r"(\D*)\d+")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Every module of one kind that stands in a run, in order of registration."""

    modules: list[nn.Module]
    num_parameters: int
    is_uniform: bool


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the repeated blocks of a model, in order of registration; empty if there are none.

    A run is neighbouring children of one ``ModuleList``, ``Sequential`` or module with numbered
    children that are of the same class; a ``Sequential`` counts as what it consists of. Of the
    classes that have a run of two or more, those holding at least half as many parameters as
    the largest are compared: one with neighbours of equal parameter shapes wins over one
    without, so that the blocks of stages of different widths win over the stages; then the one
    holding most wins, so that layers win over the experts within them.

    All runs of that class are returned, such as T5's encoder and decoder; of two stacks of
    different classes the one holding more. A module used several times counts once. Single
    layers (linear, norm, embedding, activation) and modules without a matrix are no blocks.

    Args:
        model: On any device, ``meta`` included.
    """
    runs: dict[_Kind, list[list[nn.Module]]] = {}
    for run in _runs(model):
        runs.setdefault(_kind(run[0]), []).append(run)
    repeated = [found for found in runs.values() if any(len(run) > 1 for run in found)]
    candidates = [_candidate(found) for found in repeated]
    most = max((candidate.num_parameters for candidate in candidates), default=0)
    large = [candidate for candidate in candidates if 2 * candidate.num_parameters >= most]
    if not large:
        return []
    best = max(large, key=lambda candidate: (candidate.is_uniform, candidate.num_parameters))
    return _outermost(best.modules)


def _runs(model: nn.Module) -> Iterator[list[nn.Module]]:
    seen: set[nn.Module] = set()
    for parent in model.modules():
        fresh = [(name, child) for name, child in parent.named_children() if child not in seen]
        seen.update(child for _, child in fresh)
        for group, members in groupby(fresh, key=lambda item: _group(parent, *item)):
            if group is not None:
                yield [child for _, child in members]


def _group(parent: nn.Module, name: str, child: nn.Module) -> tuple[_Kind, str] | None:
    """Return what a child has in common with the others of its run; None if it is in none."""
    numbered = _NUMBERED.fullmatch(name)
    is_listed = isinstance(parent, nn.ModuleList | nn.Sequential)
    if not (is_listed or numbered) or not _may_be_block(child):
        return None
    return _kind(child), "" if is_listed or numbered is None else numbered[1]


def _may_be_block(module: nn.Module) -> bool:
    if isinstance(module, _CONTAINERS):
        return False
    own = sum(parameter.ndim > 1 for parameter in module.parameters(recurse=False))
    if next(module.children(), None) is None:
        return own > 1
    return any(parameter.ndim > 1 for parameter in module.parameters())


def _kind(module: nn.Module) -> _Kind:
    if type(module) is nn.Sequential:
        return nn.Sequential, *(_kind(child) for child in module)
    return type(module)


def _candidate(runs: list[list[nn.Module]]) -> _Candidate:
    modules = [module for run in runs for module in run]
    sizes = {
        parameter: parameter.numel() for module in modules for parameter in module.parameters()
    }
    pairs = (pair for run in runs for pair in pairwise(run))
    return _Candidate(
        modules=modules,
        num_parameters=sum(sizes.values()),
        is_uniform=any(_shapes(first) == _shapes(second) for first, second in pairs),
    )


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in module.parameters()]


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    """Leave out modules within another one: they recompute with it."""
    within = {inner for module in modules for inner in module.modules() if inner is not module}
    return [module for module in modules if module not in within]
