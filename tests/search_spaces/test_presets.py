import pytest

from search_spaces import PRESETS, DeviceFacts, InvalidConfigError, load_space


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("batch", [1, 6, 32])
def test_every_preset_has_configs_at_every_batch(name, batch):
    assert load_space(name, global_batch_size=batch).configs(DeviceFacts())


def test_the_default_preset_varies_the_knobs_that_most_teams_try():
    configs = load_space("default", global_batch_size=8).configs(DeviceFacts())
    points = [config.as_dict() for config in configs]
    varying = {knob for knob in points[0] if len({point[knob] for point in points}) > 1}
    assert varying == {
        *("amp_dtype", "checkpoint_interval", "micro_batch_size", "accumulation_steps"),
        "optimizer_bits",
    }


def test_a_file_describes_a_space(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("global_batch_size = 4\n[knobs]\nmicro_batch_size = [1, 2]\n")
    space = load_space(str(path), global_batch_size=64)
    assert (space.name, space.global_batch_size) == ("mine", 4)


def test_a_file_without_a_batch_takes_the_studys(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[knobs]\nmicro_batch_size = [1, 2]\n")
    assert load_space(str(path), global_batch_size=64).global_batch_size == 64


def test_a_file_with_its_own_accumulation_stays_free(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[knobs]\nmicro_batch_size = [1, 2]\naccumulation_steps = [1, 2]\n")
    assert load_space(str(path), global_batch_size=64).global_batch_size is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[knobs]\nmicro_bach_size = [1]\n", "did you mean 'micro_batch_size'"),
        ("[knobs]\namp_dtype = ['fp8']\n", "must be fp32, tf32, bf16 or fp16"),
        ("globalbatch = 3\n[knobs]\nmicro_batch_size = [1]\n", "'globalbatch'"),
        ("knobs = 3\n", r"needs a \[knobs\] table"),
        ("not toml", "cannot be read"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path, text, words):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InvalidConfigError, match=words) as caught:
        load_space(str(path), global_batch_size=8)
    assert "bad.toml" in str(caught.value)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(InvalidConfigError, match="did you mean 'default'"):
        load_space("defualt", global_batch_size=8)


def test_a_missing_file_is_named():
    with pytest.raises(InvalidConfigError, match=r"no space file 'gone\.toml'"):
        load_space("gone.toml", global_batch_size=8)
