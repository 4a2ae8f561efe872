"""What DeepSpeed's files on a disk hold, by the names that it gives them."""

import pytest

from trials.swap_files import swapped_sizes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zero_stage_3/optimizer/rank0/0_15.tensor.swp", "optimizer_state"),
        ("zero_stage_3/optimizer/rank1/exp_avg-0_15.tensor.swp", "optimizer_state"),
        ("zero_stage_3/optimizer/rank0/0_15_gradient_512_1024.tensor.swp", "gradients"),
        ("zero_stage_3/bfloat16params/rank0/7_param.tensor.swp", "parameters"),
    ],
)
def test_a_file_counts_for_what_is_in_it(tmp_path, name, kind):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(4096))
    (path.parent / "notes.txt").write_text("not swapped")
    assert list(swapped_sizes(tmp_path)) == [(kind, 4096)]
