import io
from dataclasses import replace

import pytest
from rich.console import Console

from autotune.cli.progress import Progress
from autotune.events import ConfigsForeseen, QualityMeasured
from tests.factories import make_quality


@pytest.mark.parametrize(
    ("batch_size", "end"),
    [(None, "seed 0: 2.5000"), (4, "2.5000 (evaluated 4 at a time, more ran out of memory)")],
)
def test_an_evaluation_that_had_to_be_split_is_told(batch_size, end):
    measurement = make_quality(2.5).measurement
    reading = replace(measurement.quality, evaluation_batch_size=batch_size)
    shown = io.StringIO()
    Progress(Console(file=shown, width=200)).on_event(
        QualityMeasured(numerics="fp32", seed=0, measurement=replace(measurement, quality=reading))
    )
    assert shown.getvalue().strip().endswith(end)


@pytest.mark.parametrize(("put_off", "lines"), [("", 1), ("the most aggressive config waits", 2)])
def test_what_is_not_tried_first_is_told_with_the_predictions(put_off, lines):
    shown = io.StringIO()
    event = ConfigsForeseen(num_configs=96, seconds=2.1, reason="", put_off=put_off)
    Progress(Console(file=shown, width=200)).on_event(event)
    told = shown.getvalue().splitlines()
    assert told[0] == "96 configs predicted in 2.1 s" and len(told) == lines
    assert told[-1].endswith(put_off)
