"""The front of 10,000 measurements under a book of 1,000 offers, and where its winner changes.

``python -m tests.benchmarks.reprice [MEASUREMENTS] [OFFERS]``
"""

import random
import sys
from decimal import Decimal

from autotune.prices.gpus import find_gpu
from autotune.prices.quotes import Model, PriceRequest
from autotune.prices.repricing import reprice
from autotune.prices.sensitivity import analyse
from autotune.rates import GIB
from search_spaces import AmpDtype
from tests.autotune.prices.books import A100, make_book, make_offer, make_trial_on_gpu
from tests.benchmarks.front_query import milliseconds, report
from tests.factories import make_study_record
from trials.measurement import Direction

MODELS = ("A100-80GB", "A100-40GB", "H100", "H200", "L4", "L40S", "A6000", "V100-32GB", "T4")


def main(measurements: int, offers: int) -> None:
    """Measure reprice and sensitivity."""
    order = random.Random(0)
    trials = [
        make_trial_on_gpu(
            number,
            device_gib=order.uniform(1, 100),
            host_gib=order.uniform(1, 500),
            seconds=order.uniform(0.2, 5),
            amp_dtype=str(list(AmpDtype)[number % 4]),
            quality=order.uniform(2, 3),
            noise=(0.0, 0.0, 0.1),
        )
        for number in range(measurements)
    ]
    gpus = [gpu for gpu in map(find_gpu, MODELS) if gpu is not None]
    book = make_book(
        *(
            make_offer(
                instance=str(number),
                gpu=gpus[number % len(gpus)],
                num_gpus=Decimal(order.choice([1, 2, 4, 8])),
                gpu_memory_bytes=int(gpus[number % len(gpus)].memory_gib * GIB),
                host_memory_bytes=order.randint(16, 2000) * GIB,
                usd_per_hour=Decimal(order.randint(20, 9000)) / 100,
            )
            for number in range(offers)
        )
    )
    study = make_study_record(environment=A100)
    request = PriceRequest(model=Model.INSTANCE)
    sizes = f"{measurements} measurements x {offers} offers"
    report(f"reprice, {sizes}", milliseconds(lambda: reprice(study, trials, book, request)))
    rates = study.spec.rates
    report(
        f"sensitivity of 4 prices, {measurements} measurements",
        milliseconds(lambda: analyse(trials, rates, Direction.MINIMIZE)),
    )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*(given + [10_000, 1_000][len(given) :]))
