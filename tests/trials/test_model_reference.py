from pathlib import Path

from trials.model_reference import ModelReference, ModelTask, parse_model


def test_a_models_folder_is_that_of_a_config_by_its_usual_name(tmp_path):
    for name in ("config.json", "gpt2.json"):
        (tmp_path / name).write_text("{}")
    by_folder, by_file = parse_model(str(tmp_path)), parse_model(f"{tmp_path}/config.json")
    assert by_folder == by_file and by_folder.folder == tmp_path
    assert parse_model(f"{tmp_path}/gpt2.json").folder is None
    assert parse_model(f"{tmp_path}?sequence=16").sequence == 16


def test_every_option_is_read(tmp_path):
    config, text = tmp_path / "config.json", tmp_path / "a text=b.txt"
    config.write_text("{}")
    text.write_text("text")
    options = f"task=seq2seq&sequence=16&text={text}&packing=off"
    assert parse_model(f"{config}?{options}") == ModelReference(
        config_file=config,
        folder=tmp_path,
        task=ModelTask.SEQ2SEQ,
        sequence=16,
        text=Path(text),
        is_packed=False,
    )
