import itertools
import random

import pytest
import torch

from search_spaces import TrainingConfig
from tests.trials.model_configs import BERT, KINDS, LLAMA, T5, VIT, WITHOUT_DROPOUT, written
from trials.errors import WorkloadError
from trials.language import IGNORED
from trials.measurement import Outcome
from trials.spec import Task
from trials.workload import fingerprint, load_workload

TEXT_KINDS = [name for name in KINDS if name != "vision"]
NUM_LINES = 200


def load(path, options=""):
    return load_workload(f"huggingface:{path}{options}")


@pytest.fixture
def text(tmp_path):
    """A file of lines of 4 to 44 bytes."""
    file = tmp_path / "text.txt"
    words = random.Random(0)
    file.write_text(
        "\n".join("abc " * words.randrange(1, 12) for _ in range(NUM_LINES)), encoding="utf-8"
    )
    return file


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "llama").parent


def train(workload, steps, rate=3e-3):
    torch.manual_seed(0)
    model = workload.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    found = []
    for batch, _ in zip(workload.batches(8, seed=0), range(steps), strict=False):
        loss = workload.loss(model, batch) / workload.count(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def gradients(workload, micro_batch_size, samples=4):
    """Gradients of the mean over the trained units of so many samples, however split."""
    torch.manual_seed(0)
    model = workload.build().train()
    splits = samples // micro_batch_size
    window = list(itertools.islice(workload.batches(micro_batch_size, seed=3), splits))
    units = sum(workload.count(batch) for batch in window)
    for batch in window:
        (workload.loss(model, batch) / units).backward()
    return units, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("kind", TEXT_KINDS)
@pytest.mark.parametrize("options", ["?sequence=32", "?packing=off&text={text}"])
def test_every_kind_of_language_model_learns(tmp_path, text, kind, options):
    path = written(tmp_path / "model", KINDS[kind], **WITHOUT_DROPOUT)
    found = train(load(path, options.format(text=text)), steps=15)
    assert found[-1] < found[0] - 0.7


def test_a_model_of_images_learns(tmp_path):
    found = train(load(written(tmp_path / "model", VIT)), steps=60, rate=1e-3)
    assert found[0] == pytest.approx(2.303, abs=0.2)  # the logarithm of 10
    assert sum(found[-10:]) / 10 < found[0] - 0.03


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *itertools.product(TEXT_KINDS, ["?sequence=32", "?packing=off&text={text}"]),
        ("vision", ""),
    ],
)
def test_the_split_into_micro_batches_leaves_gradients_as_they_are(tmp_path, text, kind, options):
    path = written(tmp_path / "model", KINDS[kind], **WITHOUT_DROPOUT)
    workload = load(path, options.format(text=text))
    units, whole = gradients(workload, 4)
    for size in (1, 2):
        split_units, split = gradients(workload, size)
        assert split_units == units
        assert (split - whole).norm() <= 1e-6 * whole.norm()


@pytest.mark.parametrize(
    ("kind", "num_blocks"), [("causal", 2), ("masked", 2), ("seq2seq", 4), ("bart", 4)]
)
def test_the_blocks_of_every_stack_are_found(tmp_path, kind, num_blocks):
    workload = load(written(tmp_path / "model", KINDS[kind]))
    assert len(workload.blocks(workload.build())) == num_blocks


def test_a_causal_model_tells_each_token_from_those_before_it(folder):
    batch = next(load(folder).batches(2, seed=0))
    assert torch.equal(batch["input_ids"][:, 1:], batch["labels"][:, :-1])
    assert set(batch) == {"input_ids", "labels"}


def test_a_masked_model_tells_what_is_hidden_and_no_more(tmp_path):
    workload = load(written(tmp_path / "model", BERT))
    batch = next(workload.batches(4, seed=0))
    is_hidden = batch["labels"] != IGNORED
    assert workload.count(batch) == is_hidden.sum() == 4 * round(0.15 * 64)
    assert torch.equal(is_hidden, batch["input_ids"] == 256)
    other = next(workload.batches(4, seed=1))
    assert not torch.equal(is_hidden, other["labels"] != IGNORED)


def test_no_byte_stands_for_the_mask_where_the_vocabulary_is_small(tmp_path):
    batch = next(load(written(tmp_path / "model", BERT, vocab_size=100)).batches(8, seed=0))
    assert torch.equal(batch["labels"] != IGNORED, batch["input_ids"] == 99)


def test_a_sequence_to_sequence_model_writes_the_second_half(tmp_path, text):
    workload = load(written(tmp_path / "model", T5), f"?sequence=16&text={text}")
    batch = next(workload.batches(1, seed=0))
    assert batch["input_ids"].shape == batch["labels"].shape == (1, 8)
    together = bytes([*batch["input_ids"][0].tolist(), *batch["labels"][0].tolist()])
    assert together in text.read_bytes()
    assert batch["decoder_input_ids"][0].tolist() == [0, *batch["labels"][0, :-1].tolist()]


@pytest.mark.parametrize(
    ("fields", "size"), [({}, (3, 16, 16)), ({"num_channels": 1, "image_size": 8}, (1, 8, 8))]
)
def test_images_have_the_size_and_channels_that_the_model_takes(tmp_path, fields, size):
    images, labels = next(load(written(tmp_path / "model", VIT, **fields)).batches(2, seed=0))
    assert images.shape == (2, *size) and labels.shape == (2,)


def test_digits_share_the_classes_of_a_model_with_few(tmp_path):
    _, labels = next(load(written(tmp_path / "model", VIT, num_labels=4)).batches(64, seed=0))
    assert set(labels.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("options", ["?sequence=8", "?packing=off", "?text={text}"])
def test_options_for_text_are_refused_for_a_model_of_images(tmp_path, text, options):
    path = written(tmp_path / "model", VIT)
    with pytest.raises(WorkloadError, match="text, sequence and packing are options for language"):
        load(path, options.format(text=text))


def test_a_classifier_of_one_class_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="has 1 label; a classifier needs 2 or more"):
        load(written(tmp_path / "model", VIT, num_labels=1))


@pytest.mark.parametrize(
    ("fields", "options", "length"),
    [
        ({}, "", 64),
        ({}, "?sequence=16", 16),
        ({"max_position_embeddings": 4096}, "", 1024),
        ({"max_position_embeddings": 4096}, "?sequence=2000", 2000),
    ],
)
def test_the_sequence_is_the_option_or_what_the_model_allows(tmp_path, fields, options, length):
    workload = load(written(tmp_path / "model", **fields), options)
    batch = next(workload.batches(2, seed=0))
    assert batch["input_ids"].shape == (2, length) and workload.count(batch) == 2 * length


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_weights_and_samples(tmp_path, kind):
    workload = load(written(tmp_path / "model", KINDS[kind]))
    built = []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(torch.cat([p.flatten() for p in workload.build().parameters()]))
    assert torch.equal(*built)
    first, second = (next(workload.batches(2, seed=5)) for _ in range(2))
    pairs = zip(*(b.values() if isinstance(b, dict) else b for b in (first, second)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_padded_samples_are_lines_and_padding_is_not_trained(tmp_path, text):
    workload = load(written(tmp_path / "model"), f"?packing=off&text={text}")
    batch = next(workload.batches(4, seed=0))
    lengths = batch["attention_mask"].sum(1)
    lines = {line.encode() for line in text.read_text().splitlines()}
    for ids, labels, length in zip(batch["input_ids"], batch["labels"], lengths, strict=True):
        assert bytes([*ids[:1].tolist(), *labels[:length].tolist()]) in lines
        assert set(labels[length:].tolist()) <= {IGNORED} and not ids[length:].any()
    assert len(set(lengths.tolist())) > 1 and batch["labels"].shape[1] == max(lengths)
    assert workload.count(batch) == lengths.sum()


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_what_padding_holds_changes_no_loss(tmp_path, text, kind):
    path = written(tmp_path / "model", KINDS[kind], **WITHOUT_DROPOUT)
    workload = load(path, f"?packing=off&text={text}")
    model = workload.build()
    batch = next(workload.batches(4, seed=0))
    other = dict(batch)
    other["input_ids"] = torch.where(batch["attention_mask"] == 1, batch["input_ids"], 77)
    assert not torch.equal(other["input_ids"], batch["input_ids"])
    first, second = (workload.loss(model, given).item() for given in (batch, other))
    assert first == pytest.approx(second, rel=1e-6)


def test_the_mean_is_over_the_trained_tokens_of_all_lines(tmp_path):
    """Lines of 10 and 100 trained tokens: their losses weigh 10 and 100, not one each."""
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(["a" * 11, "b" * 101] * 10))
    path = written(tmp_path / "model", max_position_embeddings=256)
    workload = load(path, f"?packing=off&text={lines}")
    model = workload.build()
    short, long = (
        next(b for b in workload.batches(1, seed=0) if workload.count(b) == n) for n in (10, 100)
    )
    own = [workload.loss(model, batch).item() for batch in (short, long)]
    batch = next(b for b in workload.batches(2, seed=0) if workload.count(b) == 110)
    together = workload.loss(model, batch).item() / workload.count(batch)
    assert together == pytest.approx(sum(own) / 110, rel=1e-5)
    assert together != pytest.approx((own[0] / 10 + own[1] / 100) / 2, rel=1e-5)


def test_the_worst_batch_has_the_longest_lines_of_all_of_the_text(tmp_path):
    lines = tmp_path / "lines.txt"
    late = [*["x" * 50] * 3, *["end of the text"] * 20_000]
    lines.write_text("\n".join([*["a short line"] * 150_000, *late]))
    workload = load(written(tmp_path / "model"), f"?packing=off&text={lines}")
    batch = workload.worst_batch(4)
    assert batch["attention_mask"].sum(1).tolist() == [49, 49, 49, 14]


def test_a_worst_batch_larger_than_the_text_repeats_lines(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("one line\nand a longer line\nheld out")
    workload = load(written(tmp_path / "model"), f"?packing=off&text={lines}")
    assert workload.worst_batch(5)["attention_mask"].sum(1).tolist() == [16, 7, 16, 7, 16]


def test_lines_are_cut_at_the_sequence(tmp_path, text):
    workload = load(written(tmp_path / "model"), f"?packing=off&sequence=8&text={text}")
    assert workload.worst_batch(2)["input_ids"].shape == (2, 8)


def test_a_file_is_trained_on_and_its_end_is_held_out(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("learn this. " * 80 + "\n" + "and not this. " * 8)
    workload = load(written(tmp_path / "model"), f"?sequence=12&text={file}")
    assert bytes(workload.training.ids.tolist()).decode() == "learn this. " * 80 + "\n"
    assert bytes(workload.held_out.ids.tolist()).decode() == "and not this. " * 8


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"caf\xe9 " * 99, "", "is not in UTF-8: byte 3 is 0xe9; convert it"),
        (b"a few words", "", "too short, text='{text}': a part of it"),
        (b"a", "", "too short, text='{text}': a part of it"),
        (b"a\n\n" * 99, "&packing=off", "needs a line of 2 tokens or more; give more text"),
        (b"a few words\n" * 9, "&sequence=16", "is 12 tokens, and sequence=16 needs 17"),
    ],
    ids=["encoding", "short", "byte", "lines", "held out"],
)
def test_a_text_that_cannot_be_trained_on_says_why(tmp_path, content, options, words):
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(WorkloadError) as caught:
        load(written(tmp_path / "model"), f"?text={file}{options}")
    assert words.format(text=file) in str(caught.value)


def test_a_sequence_beyond_the_model_is_refused(folder):
    with pytest.raises(WorkloadError, match=r"sequence=65: the model's longest is 64 "):
        load(folder, "?sequence=65")


def test_a_sequence_beyond_the_text_is_refused(tmp_path):
    path = written(tmp_path / "model", max_position_embeddings=10**9)
    with pytest.raises(WorkloadError, match=r"too short, Python's own sources.*9000000 needs"):
        load(path, "?sequence=9000000")


def test_a_sequence_that_has_no_halves_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match=r"sequence=1: an encoder and a decoder need 2"):
        load(written(tmp_path / "model", T5), "?sequence=1")


def test_the_fingerprint_follows_the_config_and_options_and_not_the_place(tmp_path, text):
    copied = tmp_path / "copied.txt"
    copied.write_bytes(text.read_bytes())
    changed = tmp_path / "changed.txt"
    changed.write_bytes(text.read_bytes()[:-1] + b"!")
    first = written(tmp_path / "a")
    same = [
        [f"{first}", f"{written(tmp_path / 'b').parent}", f"{first}?packing=on&task=causal"],
        [f"{first}?text={text}", f"{first}?text={copied}"],
    ]
    others = [f"{first}?sequence=16", f"{written(tmp_path / 'c', hidden_size=32)}"]
    others += [f"{first}?text={changed}", f"{first}?packing=off"]
    prints = {}
    for place in [*itertools.chain(*same), *others]:
        reference = f"huggingface:{place}"
        prints[place] = fingerprint(reference, load_workload(reference))
    assert all(len({prints[place] for place in group}) == 1 for group in same)
    assert len(set(prints.values())) == len(same) + len(others)


def test_the_fingerprint_follows_weights_of_equal_size(folder):
    prints = []
    for scale in (1.0, 2.0):
        model = load(folder).build()
        model.lm_head.weight.data *= scale
        model.save_pretrained(folder)
        prints.append(fingerprint(f"huggingface:{folder}", load(folder)))
    assert prints[0] != prints[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", [Task.DESCRIBE, Task.MEASURE, Task.QUALITY])
def test_a_trial_of_every_kind_completes(run, tmp_path, text, kind, task):
    options = "" if kind == "vision" else f"?packing=off&text={text}"
    found = run(
        f"huggingface:{written(tmp_path / 'model', KINDS[kind])}{options}",
        task=task,
        config=TrainingConfig(
            checkpoint_interval=1, amp_dtype="bf16", micro_batch_size=2, accumulation_steps=2
        ),
        quality_samples=8,
        memory_budget_bytes=300 * 2**20,
    )
    assert found.outcome == Outcome.COMPLETED, found.failure
    if task == Task.DESCRIBE:
        assert found.facts.num_blocks == (4 if kind in ("seq2seq", "bart") else 2)
        assert found.facts.unit == ("samples" if kind == "vision" else "tokens")
    if task == Task.QUALITY:
        assert 0 < found.quality.value < 7


@pytest.mark.slow
def test_a_packed_trial_counts_every_token(run, folder):
    assert LLAMA["max_position_embeddings"] == 64
    found = run(f"huggingface:{folder}", config=TrainingConfig(micro_batch_size=2))
    assert found.outcome == Outcome.COMPLETED, found.failure
    assert found.timing.units_per_step == 2 * 64
