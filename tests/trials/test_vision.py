import importlib.metadata
import itertools

import pytest
import torch

from search_spaces import TrainingConfig
from trials.errors import WorkloadError
from trials.measurement import Outcome
from trials.spec import Task
from trials.vision import SIZES, Vit
from trials.workload import load_workload


@pytest.fixture(scope="module")
def workload():
    return load_workload("vision")


@pytest.mark.parametrize(("name", "millions"), [("tiny", 0.2), ("small", 1.2), ("base", 6.3)])
def test_each_size_has_the_parameters_that_the_readme_gives(name, millions):
    with torch.device("meta"):
        model = Vit(SIZES[name])
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.05)


def test_images_are_real_digits_split_once(workload):
    assert (len(workload.training.labels), len(workload.held_out.labels)) == (1438, 359)
    assert set(workload.training.labels.tolist()) == set(range(10))
    assert workload.training.images.mean().abs() < 0.1
    assert workload.training.images.std() == pytest.approx(1, abs=0.1)


def test_no_image_is_both_trained_on_and_held_out(workload):
    trained, held_out = (
        {tuple(image.flatten().tolist()) for image in part.images}
        for part in (workload.training, workload.held_out)
    )
    assert not trained & held_out


def test_the_split_does_not_change_the_order_of_samples(workload):
    whole = next(workload.batches(4, seed=3))
    split = list(itertools.islice(workload.batches(1, seed=3), 4))
    for first, second in zip(whole, zip(*split, strict=True), strict=True):
        assert torch.equal(first, torch.cat(second))
    assert not torch.equal(whole[0], next(workload.batches(4, seed=4))[0])


def test_an_epoch_has_every_image_once(workload):
    images, _ = next(workload.batches(1438, seed=0))
    assert len({tuple(image.flatten().tolist()) for image in images}) == len(
        {tuple(image.flatten().tolist()) for image in workload.training.images}
    )


def test_a_patch_holds_neighbouring_pixels():
    model = Vit(SIZES["tiny"])
    seen = []
    model.patch_embedding.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    model(torch.arange(64.0).reshape(1, 8, 8))
    assert seen[0].shape == (1, 16, 4) and seen[0][0, 0].tolist() == [0, 1, 8, 9]


def test_an_image_is_told_by_all_of_its_patches():
    model = Vit(SIZES["tiny"])
    patches = torch.zeros(2, 16, SIZES["tiny"].width)
    patches[1, -1, 0] = 1.0
    first, second = model.blocks[0](patches)[:, 0]
    assert not torch.equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_it_learns_within_its_quality_samples(run, workload, seed):
    found = run(
        "vision:tiny",
        task=Task.QUALITY,
        seed=seed,
        config=TrainingConfig(micro_batch_size=8),
        quality_samples=workload.quality_samples,
    )
    assert found.outcome == Outcome.COMPLETED, found.failure
    assert found.quality.value > 0.6  # a tenth by chance


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    def files(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(WorkloadError, match=r"pip install 'autotune\[vision\]'"):
        load_workload("vision")
