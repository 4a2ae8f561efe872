"""BoTorch's noisy expected hypervolume improvement over a table's configs, with no physics.

Gaussian processes of the objectives, and of the memory constraint, on the knobs alone; the
acquisition is qLogNEHVI (Ament et al. 2023), evaluated at every config that is still open.
"""

import math
import random

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition.multi_objective.logei import (
    qLogNoisyExpectedHypervolumeImprovement as LogNehvi,
)
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.exceptions.errors import ModelFittingError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import SumMarginalLogLikelihood
from torch import Tensor

from search_spaces import KNOBS, TrainingConfig
from tests.benchmarks.replay.table import Entry, Table

FIRST_TRIALS = 5
"""Drawn at random before there is any model."""
MC_SAMPLES = 64


class PlainNehvi:
    """See the module."""

    def __init__(self, table: Table, seed: int) -> None:
        """Encode the configs and draw the first ones."""
        self._table = table
        self._points = knob_points(table.configs)
        self._tried: list[int] = []
        places = range(len(table.entries))
        self._order = random.Random(seed).sample(places, len(places))
        self._seed = seed

    def ask(self) -> int | None:
        """See Sampler."""
        is_open = set(self._order) - set(self._tried)
        if not is_open:
            return None
        drawn = next(place for place in self._order if place in is_open)
        fitted = [place for place in self._tried if self._table.is_feasible[place]]
        if len(self._tried) < FIRST_TRIALS or len(fitted) < 2:
            return drawn
        try:
            acquisition = self._acquisition(fitted)
        except ModelFittingError:  # rare, on points all alike: as good as no model
            return drawn
        candidates = sorted(is_open)
        with torch.no_grad():
            gains = acquisition(self._points[candidates].unsqueeze(1))
        return candidates[int(gains.argmax())]

    def tell(self, place: int, entry: Entry) -> None:
        """See Sampler."""
        self._tried.append(place)

    def _acquisition(self, fitted: list[int]) -> LogNehvi:
        gains = torch.from_numpy(-self._table.losses[fitted])
        memory = [self._table.entries[p].constraints["memory"] for p in self._tried]
        models = [_model(self._points[fitted], column[:, None]) for column in gains.T]
        models.append(_model(self._points[self._tried], torch.tensor(memory).double()[:, None]))
        model = ModelListGP(*models)
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        objectives = list(range(gains.shape[1]))
        return LogNehvi(
            model=model,
            ref_point=infer_reference_point(gains[is_non_dominated(gains)]),
            X_baseline=self._points[self._tried],
            sampler=SobolQMCNormalSampler(torch.Size([MC_SAMPLES]), seed=self._seed),
            objective=IdentityMCMultiOutputObjective(outcomes=objectives),
            constraints=[lambda outcomes: outcomes[..., -1]],
            prune_baseline=True,
        )


def knob_points(configs: list[TrainingConfig]) -> Tensor:
    """Return configs in the unit box: ordered knobs by their logarithm, others one-hot."""
    columns = []
    for name, knob in KNOBS.items():
        values = [config.as_dict()[name] for config in configs]
        distinct = sorted(set(values), key=str)
        if len(distinct) < 2:
            continue
        if knob.is_ordered:
            logs = [math.log2(1 + int(value)) for value in values]
            low, high = min(logs), max(logs)
            columns.append([(value - low) / (high - low) for value in logs])
        else:
            columns += [[float(value == one) for value in values] for one in distinct]
    return torch.tensor(columns, dtype=torch.float64).T.contiguous()


def _model(points: Tensor, values: Tensor) -> SingleTaskGP:
    return SingleTaskGP(points, values, outcome_transform=Standardize(m=1))
