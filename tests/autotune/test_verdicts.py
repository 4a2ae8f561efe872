from dataclasses import replace

import pytest

from autotune.verdicts import headline, is_verified, judge, verified_text
from tests.factories import MIB, make_measurement, make_memory, make_oom, make_timing
from trials.measurement import Verification
from trials.spec import Through

LOSSES = (5.0, 4.0, 3.0)
BUDGET = 600 * MIB


def ran(*, peak=400, seconds=0.5, losses=LOSSES):
    seen = Verification(through="torch", losses=losses, quality=2.0, checkpoint_bytes=1)
    return make_measurement(
        memory=make_memory(peak_device_bytes=peak * MIB),
        timing=make_timing(seconds),
        verification=seen,
    )


def judged(*runs, reference=None):
    return judge(Through.TORCH, make_measurement(), reference or ran(), runs, BUDGET)


@pytest.mark.parametrize(
    ("runs", "objection"),
    [
        ([ran(), ran()], ""),
        ([ran(peak=439)], ""),
        ([ran(peak=450)], "its peak is 450 MiB to 450 MiB, more than 40 MiB over"),
        ([ran(peak=450), ran(peak=420)], ""),
        ([ran(peak=420), ran(peak=590)], "it took 590 MiB of 600 MiB with an evaluation"),
        ([ran(seconds=0.6)], ""),
        ([ran(seconds=0.7)], "its steps take 0.700 s at best, more than 20% over"),
        ([ran(seconds=0.7), ran(seconds=0.55)], ""),
        ([ran(losses=(5.0, 4.0, 3.05))], ""),
        ([ran(losses=(5.0, 4.0, 3.3))], "off those of the trial's loop by 10.0%"),
        ([ran(), make_oom()], "out of memory in warm-up"),
    ],
)
def test_runs_object_beyond_noise_and_margin_alone(runs, objection):
    verdict = judged(*runs)
    assert objection in verdict.objection
    assert verdict.is_verified == (objection == "")


def test_a_machine_that_is_slower_by_now_is_no_objection():
    assert judged(ran(seconds=0.9), reference=ran(seconds=0.9)).is_verified


def test_a_trials_loop_that_fails_now_verifies_nothing():
    assert "out of memory" in judged(ran(), reference=make_oom()).objection


def test_only_what_is_verified_is_called_recommended():
    good, bad = judged(ran()), judged(ran(peak=500))
    assert headline({}) == headline({Through.TORCH: bad}) == "Best measured"
    assert headline({Through.TORCH: good}) == "Recommended"
    assert is_verified({}) is None
    assert not is_verified({Through.TORCH: good, Through.ACCELERATE: replace(bad)})


def test_the_words_give_the_numbers_or_the_command():
    assert verified_text("mine", {}).endswith("autotune verify mine\n")
    line = verified_text("mine", {Through.TORCH: judged(ran(), ran(seconds=0.52))})
    assert line == (
        "Verified through torch: 2 run(s), peak 400 MiB (trial 400 MiB), step 0.500 to 0.520 s "
        "(trial 0.500 s), losses within 0.00%.\n"
    )
