"""A TensorFlow program as a workload: a small convolutional network on scikit-learn's digits."""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy
import tensorflow as tf
from sklearn.datasets import load_digits

CONFIG = json.loads(os.environ["AUTOTUNE_CONFIG"])
POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
MICRO, ACCUMULATION = CONFIG["micro_batch_size"], CONFIG["accumulation_steps"]
HELD_OUT = 297
layers = tf.keras.layers


class Report:
    def __init__(self):
        self.file = open(os.environ["AUTOTUNE_REPORT_FILE"], "w")

    def __call__(self, **line):
        print(json.dumps(line), file=self.file, flush=True)


def build():
    return tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, dtype="float32"),
        ]
    )


class Training:
    """A model, its optimizer, and the gradients of an accumulation window."""

    def __init__(self, model):
        self.model = model
        self.loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.inner = tf.keras.optimizers.Adam(1e-3)
        is_scaled = CONFIG["amp_dtype"] == "fp16"
        self.optimizer = (
            tf.keras.mixed_precision.LossScaleOptimizer(self.inner) if is_scaled else self.inner
        )
        self.optimizer.build(model.trainable_variables)
        self.gradients = [
            tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables
        ]

    @tf.function
    def add_micro_batch(self, images, labels):
        with tf.GradientTape() as tape:
            loss = self.loss(labels, self.model(images, training=True)) / ACCUMULATION
            scaled = self.optimizer.scale_loss(loss)
        for total, new in zip(
            self.gradients, tape.gradient(scaled, self.model.trainable_variables), strict=True
        ):
            total.assign_add(new)
        return loss

    @tf.function
    def apply(self):
        values = [tf.convert_to_tensor(g) for g in self.gradients]
        self.optimizer.apply_gradients(zip(values, self.model.trainable_variables, strict=True))
        for gradient in self.gradients:
            gradient.assign(tf.zeros_like(gradient))

    def step(self, window):
        """Take one optimizer step; return its loss, and whether the loss scaler skipped it."""
        before = int(self.inner.iterations)
        loss = sum(float(self.add_micro_batch(*batch)) for batch in window)
        self.apply()
        return loss, int(self.inner.iterations) == before


def batches(images, labels):
    """Yield micro-batches without end: the same samples in the same order, however split."""
    order = numpy.random.default_rng(CONFIG["seed"])
    rest = numpy.empty(0, dtype=int)
    while True:
        while len(rest) < MICRO:
            rest = numpy.concatenate([rest, order.permutation(len(images))])
        taken, rest = rest[:MICRO], rest[MICRO:]
        yield images[taken], labels[taken]


def main():
    tf.config.threading.set_intra_op_parallelism_threads(CONFIG["num_threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(CONFIG["seed"])
    tf.keras.mixed_precision.set_global_policy(POLICIES[CONFIG["amp_dtype"]])
    report = Report()
    digits = load_digits()
    images, labels = digits.images[..., None].astype("float32") / 16, digits.target
    report(ready=True)
    model = build()
    report(
        facts={
            "num_parameters": model.count_params(),
            "unit": "samples",
            "quality_name": "accuracy",
            "quality_direction": "maximize",
            "global_batch_size": 32,
            "quality_samples": 4096,
            "knobs": ["amp_dtype", "micro_batch_size", "accumulation_steps"],
        }
    )
    training, seen = Training(model), 0
    stream = batches(images[HELD_OUT:], labels[HELD_OUT:])
    while CONFIG["task"] != "quality" or seen < CONFIG["quality_samples"]:
        waited = time.perf_counter()
        window = [next(stream) for _ in range(ACCUMULATION)]
        started = time.perf_counter()
        loss, is_skipped = training.step(window)
        report(
            step_seconds=time.perf_counter() - started,
            samples=MICRO * ACCUMULATION,
            loss=loss,
            skipped=is_skipped,
            data_wait_seconds=started - waited,
        )
        seen += 0 if is_skipped else MICRO * ACCUMULATION
    answers = model(images[:HELD_OUT]).numpy().argmax(-1)
    report(quality=float((answers == labels[:HELD_OUT]).mean()))


if __name__ == "__main__":
    main()
