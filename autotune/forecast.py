"""What a study expects of its configs: predicted from a trace, corrected by its own trials."""

import math
from collections.abc import Sequence

from autotune.figures import shown_bytes
from autotune.optimizer.frontier.prior import ConfigPrior
from autotune.predict.calibration import COVERAGE
from autotune.predict.predictor import Prediction, Predictor
from autotune.rates import GIB, MILLION, Rates
from autotune.records import Scores, StudySpec
from autotune.reuse import TooLarge
from search_spaces import TrainingConfig
from trials.measurement import Measurement, Outcome

STEPS_OF_TRIAL = 10
"""Optimizer steps that a trial's time is reckoned with, beside what starting one takes."""
STARTING_SECONDS = 1.0
FEWEST_TRIALS = 3
"""Completed trials that must have corrected predictions before one refuses a config."""
HOPELESS = 0.01
"""A config as likely to fit as that is not among the first that are tried."""
SURE = (1 + COVERAGE) / 2
"""Share of configs that take at least the lower end of their interval."""


class Forecast:
    """Predictions of a study's configs.

    Attributes:
        priors: Before any trial, by place of the config.
        costs: US dollars of a million samples, before any trial, likewise.
    """

    def __init__(
        self, predictor: Predictor, spec: StudySpec, configs: Sequence[TrainingConfig]
    ) -> None:
        """Predict every config, before any trial."""
        self._predictor, self._spec = predictor, spec
        self._trials: list[tuple[TrainingConfig, Measurement]] = []
        self._is_up_to_date = True
        found = predictor.predict(configs, spec.memory_budget_bytes)
        self.priors = tuple(_prior(prediction) for prediction in found)
        num_devices = spec.space.num_devices
        self.costs = tuple(predicted_usd(p, spec.rates, num_devices) for p in found)

    def learn(self, config: TrainingConfig, measurement: Measurement) -> None:
        """Correct later predictions by a trial; one that did not complete teaches nothing."""
        if measurement.outcome == Outcome.COMPLETED and measurement.memory is not None:
            self._trials.append((config, measurement))
            self._is_up_to_date = False

    def refusal(self, config: TrainingConfig) -> TooLarge | None:
        """Return why a config is not worth running; None if it may fit.

        It is refused when even the lower end of its interval exceeds the memory budget. That end
        is conformal: of configs like those measured, ``SURE`` take at least as much.
        """
        if len(self._trials) < FEWEST_TRIALS:
            return None
        peak = self._predicted(config).peak_device_bytes
        budget = self._spec.memory_budget_bytes
        if peak.low <= budget:
            return None
        return TooLarge(
            reason=f"not run: predicted to take {shown_bytes(int(peak.mean))}, and "
            f"{shown_bytes(int(peak.low))} at least ({SURE:.0%} sure), by "
            f"{len(self._trials)} measured trials",
            attempted_bytes=int(peak.mean),
        )

    def is_hopeless(self, config: TrainingConfig) -> bool:
        """Tell whether a config surely does not fit, as far as is known by now."""
        return self.probability_fits(config) < HOPELESS

    def expected_bytes(self, config: TrainingConfig) -> int:
        """Return the device memory that a config is expected to take."""
        return int(self._predicted(config).peak_device_bytes.mean)

    def probability_fits(self, config: TrainingConfig) -> float:
        """Return how likely a config keeps to the memory budget."""
        found = self._predicted(config).probability_fits
        assert found is not None
        return found

    def scores(self, config: TrainingConfig) -> Scores:
        """Return the cost and throughput that a config would have if it fitted the budget."""
        prediction = self._predicted(config)
        spec, num_devices = self._spec, self._spec.space.num_devices
        batch = config.effective_batch_size(num_devices)
        return Scores(
            cost_usd_per_million_samples=predicted_usd(
                prediction, spec.rates, num_devices, spec.memory_budget_bytes
            ),
            throughput_samples_per_second=batch / prediction.step_seconds.mean,
        )

    def _predicted(self, config: TrainingConfig) -> Prediction:
        if not self._is_up_to_date:
            self._predictor.learn(self._trials)
            self._is_up_to_date = True
        return self._predictor.predict([config], self._spec.memory_budget_bytes)[0]


def predicted_usd(
    prediction: Prediction, rates: Rates, num_devices: int, most_bytes: float = math.inf
) -> float:
    """Return the predicted price of a million samples, in US dollars; tiny where all is free.

    Args:
        prediction: Of a config.
        rates: Prices.
        num_devices: Of the job.
        most_bytes: Device memory that is counted at most.
    """
    peak = min(prediction.peak_device_bytes.mean, most_bytes)
    hour = num_devices * (
        rates.device_usd_per_hour
        + rates.device_gib_usd_per_hour * peak / GIB
        + rates.host_gib_usd_per_hour * prediction.peak_host_bytes / GIB
    )
    batch = prediction.config.effective_batch_size(num_devices)
    return max(hour * prediction.step_seconds.mean / batch * MILLION / 3600, math.ulp(1.0))


def _prior(prediction: Prediction) -> ConfigPrior:
    step = prediction.step_seconds.mean
    return ConfigPrior(
        peak_device_bytes=prediction.peak_device_bytes.mean,
        step_seconds=step,
        trial_seconds=STARTING_SECONDS + STEPS_OF_TRIAL * step,
        peak_errors=prediction.peak_errors,
        step_errors=prediction.step_errors,
    )
