# train.py
import json
import os
import random
import time

config = json.loads(os.environ["AUTOTUNE_CONFIG"])
report_file = open(os.environ["AUTOTUNE_REPORT_FILE"], "w")
order = random.Random(config["seed"])
weights = [0.0] * 64


def report(**line):
    print(json.dumps(line), file=report_file, flush=True)


def draw(order):  # the answer is the sum of the first eight inputs
    inputs = [order.uniform(-1, 1) for _ in weights]
    return inputs, sum(inputs[:8])


def error(inputs, answer):
    return sum(w * x for w, x in zip(weights, inputs, strict=True)) - answer


def train_micro_batch(gradient):
    batch = [draw(order) for _ in range(config["micro_batch_size"])]
    for inputs, answer in batch:
        wrong = error(inputs, answer)
        gradient[:] = [g + wrong * x for g, x in zip(gradient, inputs, strict=True)]


report(
    facts={
        "num_parameters": 64,
        "unit": "samples",
        "quality_name": "squared error",
        "quality_direction": "minimize",
        "global_batch_size": 8,
        "quality_samples": 512,
        "knobs": ["micro_batch_size", "accumulation_steps"],
    }
)
seen, batch_size = 0, config["micro_batch_size"] * config["accumulation_steps"]
while config["task"] != "quality" or seen < config["quality_samples"]:
    started, gradient = time.perf_counter(), [0.0] * 64
    for _ in range(config["accumulation_steps"]):
        train_micro_batch(gradient)
    weights[:] = [w - 0.3 * g / batch_size for w, g in zip(weights, gradient, strict=True)]
    report(step_seconds=time.perf_counter() - started)
    seen += batch_size
held_out = random.Random("held out")
report(quality=sum(error(*draw(held_out)) ** 2 for _ in range(500)) / 500)
