import pytest

from autotune.prices.gpus import bounds_of_slowdown, find_gpu, known_gpus
from search_spaces import AmpDtype


@pytest.mark.parametrize(
    ("text", "memory_gib", "found"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.2, "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "A100 40GB"),
        ("NVIDIA H100 80GB HBM3", 79.2, "H100 80GB"),
        ("NVIDIA H100 PCIe", 79.2, "H100 80GB"),
        ("NVIDIA H100 NVL", 93.1, "H100NVL 94GB"),
        ("NVIDIA GH200 480GB", 94.5, "GH200 96GB"),
        ("NVIDIA H200", 139.8, "H200 141GB"),
        ("Tesla T4", 14.6, "T4 16GB"),
        ("Tesla V100-SXM2-16GB", 15.8, "V100 16GB"),
        ("V100-32GB", None, "V100 32GB"),
        ("A10G", 22.35, "A10G 24GB"),
        ("NVIDIA RTX A6000", 47.5, "A6000 48GB"),
        ("RTXA5000", 24, "A5000 24GB"),
        ("NVIDIA GeForce RTX 3090", 23.6, "RTX3090 24GB"),
        ("NVIDIA RTX 6000 Ada Generation", 47.5, "RTX6000Ada 48GB"),
        ("RTX6000-Ada", None, "RTX6000Ada 48GB"),
    ],
)
def test_one_model_has_many_names(text, memory_gib, found):
    assert str(find_gpu(text, memory_gib)) == found


@pytest.mark.parametrize("text", ["T4g", "K80", "Radeon MI25", "tpu-v4-8", ""])
def test_what_is_not_in_the_table_is_not_known(text):
    assert find_gpu(text) is None


def test_a_name_that_two_cards_have_is_left_open():
    assert find_gpu("A100") is None


def test_the_table_has_the_known_models_with_capability():
    models = [gpu for models in known_gpus().values() for gpu in models]
    assert len(models) == 67
    assert all(gpu.capability is not None for gpu in models)


def test_an_estimate_lies_between_the_ratios_of_arithmetic_and_of_bandwidth():
    """A100 to H100 in bf16: 312 to 989.5 TFLOP/s, 2039 to 3350 GB/s."""
    fast, slow = bounds_of_slowdown(find_gpu("A100-80GB"), find_gpu("H100"), AmpDtype.BF16)
    assert fast == pytest.approx(312 / 989.5)
    assert slow == pytest.approx(2039 / 3350)


def test_without_a_data_sheet_there_is_no_estimate():
    assert bounds_of_slowdown(find_gpu("A100-80GB"), find_gpu("A16"), AmpDtype.BF16) is None


def test_a_dtype_that_a_card_does_not_have_is_not_estimated():
    assert bounds_of_slowdown(find_gpu("V100-32GB"), find_gpu("L4"), AmpDtype.TF32) is None
