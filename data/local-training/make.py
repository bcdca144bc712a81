"""Train the small character model anew, in the order of the exchanges of each scheme.

``python data/local-training/make.py`` writes ``losses.parquet`` (five schemes, five seeds, about
half a minute of CPU time each); ``--regions own.csv --out own.parquet`` does so for other regions.
The order of exchanges, and so the staleness, is that of the clock of Pythia-70M; the loss is that
of a model of 34,459 parameters on a text that ships with CPython (the set ``local-training-text``).

Two hidden layers of 96 (tanh) on 12 characters, each embedded in 12 numbers; batches of 32; the
last tenth of the text is held out. Workers run AdamW (3e-3, betas 0.9 and 0.95, decay 0.1,
gradients clipped to norm 1) and keep its state between rounds; data and learning rate follow the
order in which local steps are handed out. Synchronous training is one AdamW on the mean gradient
of all workers. Nothing but the learning rate of the workers differs from the examples of HALoS.
"""

from __future__ import annotations

import argparse
import lzma
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

# Products of such small matrices are slower on several threads; before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from workbench import analyze, datasets, load, simulate
from workbench._shared.local_training import SCHEMES
from workbench.tables import LOCAL_TRAINING_LOSSES

HERE = Path(__file__).resolve().parent
SEEDS = range(5)
EVALUATIONS = 128
CONTEXT, EMBEDDING, HIDDEN, BATCH = 12, 12, 96, 32
HELD_OUT_SHARE, HELD_OUT_COUNT = 0.1, 4096
RATE, BETAS, EPSILON, DECAY, CLIP = 3e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
# Of 6,144 global steps 300 are warm-up; then a cosine down to 10 %.
WARM_UP, LEAST = 300 / 6_144, 0.1


class Rule(NamedTuple):
    """Delayed Nesterov momentum of a server: learning rate per update, momentum, delay."""

    rate: float
    momentum: float
    delay: int = 1


RULES = {
    "DiLoCo": Rule(0.7, 0.9),
    "DiLoCo dynamic": Rule(0.7, 0.9),
    "Async-Local-SGD": Rule(0.05, 0.9, 32),
    "HALoS": Rule(0.2, 0.9, 16),  # of the regions
}
GLOBAL_RULE = Rule(0.15, 0.5, 2)  # of HALoS


class Server:
    """A model that takes updates one after the other, with delayed Nesterov momentum.

    With N the delay and r the rate per update (N r in the paper), momentum acts at every N-th
    update, ``m = b m + sum / N; x -= N r (b m + g / N)``; all others are plain steps,
    ``x -= r g`` (arXiv:2401.09135, with c = 0). Without delay it is Nesterov's momentum.
    """

    def __init__(self, model: np.ndarray, rule: Rule) -> None:
        self.model, self.rule = model.copy(), rule
        self.momentum, self.gathered = np.zeros_like(model), np.zeros_like(model)
        self.count = 0

    def take(self, update: np.ndarray) -> None:
        """Take one update: start of a worker's local steps minus their end."""
        rate, momentum, delay = self.rule
        self.gathered += update
        self.count += 1
        self.model -= rate * update
        if self.count % delay == 0:
            self.momentum = momentum * self.momentum + self.gathered / delay
            self.model -= rate * delay * momentum * self.momentum
            self.gathered[:] = 0


class Trainer:
    """The initial model, the data, and the optimizer state of every worker."""

    def __init__(self, text: str, seed: int, step_count: int) -> None:
        # Every distinct character is a number, in the order of Unicode.
        points = np.array([ord(letter) for letter in text])
        letters, self.codes = np.unique(points, return_inverse=True)
        size, inputs = len(letters), CONTEXT * EMBEDDING
        self.shapes = ((size, EMBEDDING), (inputs, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN))
        self.shapes += ((HIDDEN,), (HIDDEN, size), (size,))
        self.ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        self.one_hot = np.eye(size, dtype=np.float32)
        rng = np.random.default_rng([seed, 0])
        # Matrices by the root of their inputs, biases at 0, embeddings of variance 1.
        scales = (1.0, inputs**-0.5, 0, HIDDEN**-0.5, 0, HIDDEN**-0.5, 0)
        drawn = [rng.standard_normal(shape) for shape in self.shapes]
        values = [(x * by).ravel() for x, by in zip(drawn, scales, strict=True)]
        self.first = np.concatenate(values).astype(np.float32)
        trained = int(len(text) * (1 - HELD_OUT_SHARE))
        rng = np.random.default_rng([seed, 1])
        self.starts = rng.integers(0, trained - CONTEXT, (step_count, BATCH))
        last = len(text) - CONTEXT - 1
        self.held_out = np.linspace(trained, last, HELD_OUT_COUNT).astype(np.int64)
        self.step_count, self.handed_out = step_count, 0
        self.states: dict[int, list[Any]] = {}

    def hand_out(self, steps: int) -> int:
        """Reserve the next local steps in the order of the data; return the first."""
        self.handed_out += steps
        return self.handed_out - steps

    def trained(
        self, start: np.ndarray, worker: int, first: int, count: int, *, batches: int = 1
    ) -> np.ndarray:
        """Run local steps of one worker: AdamW, whose state stays with the worker."""
        model = start.copy()
        zeros = np.zeros_like(model)
        state = self.states.setdefault(worker, [0, zeros, zeros.copy()])
        fast, slow = BETAS
        for step in range(first, first + count):
            # Asynchronous workers hand out a few steps beyond the end of the job.
            rows = np.arange(step, step + batches) % self.step_count
            _, gradient = self.loss(model, self.starts[rows].ravel())
            gradient *= min(1.0, CLIP / (float(np.linalg.norm(gradient)) + 1e-6))
            state[0] += 1
            state[1] += (1 - fast) * (gradient - state[1])
            state[2] += (1 - slow) * (gradient * gradient - state[2])
            rate = self.rate(step)
            root = np.sqrt(state[2] * (1 / (1 - slow ** state[0])))
            root += EPSILON
            model *= 1 - rate * DECAY
            model -= state[1] * (rate / (1 - fast ** state[0])) / root
        return model

    def rate(self, step: int) -> float:
        """Return the learning rate of a local step: linear warm-up, then a cosine."""
        done = min((step + 1) / self.step_count, 1.0)
        if done < WARM_UP:
            return RATE * done / WARM_UP
        fall = 0.5 * (1 + np.cos(np.pi * (done - WARM_UP) / (1 - WARM_UP)))
        return float(RATE * (LEAST + (1 - LEAST) * fall))

    def held_out_loss(self, model: np.ndarray) -> float:
        """Return the mean cross-entropy at fixed positions of the held-out text."""
        return self.loss(model, self.held_out, has_gradient=False)[0]

    def loss(
        self, model: np.ndarray, starts: np.ndarray, *, has_gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the cross-entropy of the character after each context, and its gradient."""
        embedding, w1, b1, w2, b2, w3, b3 = self.views(model)
        codes = self.codes[starts[:, None] + np.arange(CONTEXT + 1)]
        context, target = codes[:, :-1], codes[:, -1]
        at = np.arange(len(target))
        x = embedding[context].reshape(len(target), -1)
        h1 = np.tanh(x @ w1 + b1)
        h2 = np.tanh(h1 @ w2 + b2)
        share = h2 @ w3 + b3
        share -= share.max(axis=1, keepdims=True)
        np.exp(share, out=share)
        share /= share.sum(axis=1, keepdims=True)
        loss = float(-np.log(share[at, target]).mean(dtype=np.float64))
        gradient = np.empty_like(model)
        if not has_gradient:
            return loss, gradient
        of_embedding, *parts = self.views(gradient)
        share[at, target] -= 1
        share /= model.dtype.type(len(target))
        back = (share @ w3.T) * (1 - h2 * h2)
        further = (back @ w2.T) * (1 - h1 * h1)
        for layer, (inputs, errors) in enumerate(((x, further), (h1, back), (h2, share))):
            np.matmul(inputs.T, errors, out=parts[2 * layer])
            errors.sum(axis=0, out=parts[2 * layer + 1])
        spread = (further @ w1.T).reshape(-1, EMBEDDING)
        one_hot = self.one_hot[context.ravel()]
        of_embedding[:] = one_hot.T @ spread
        return loss, gradient

    def views(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the matrices and biases that lie in one vector."""
        pieces = np.split(flat, self.ends)
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]


def replayed(
    events: pd.DataFrame, trainer: Trainer, job: analyze.LocalTrainingJob
) -> Iterator[tuple[int, np.ndarray]]:
    """Train along the events; give local steps and global model whenever that changes."""
    scheme = str(events["scheme"].iloc[0])
    if scheme in ("synchronous", "DiLoCo", "DiLoCo dynamic"):
        yield from in_rounds(events, trainer, scheme)
        return
    is_halos = scheme == "HALoS"
    names = list(dict.fromkeys(events["region"])) if is_halos else ["global"]
    servers = {name: Server(trainer.first, RULES[scheme]) for name in names}
    above = Server(trainer.first, GLOBAL_RULE)
    # By region: the model after the last merge and updates since; what is pushed, what comes back.
    merged, since = dict.fromkeys(names, trainer.first), dict.fromkeys(names, 0)
    pushed: dict[str, np.ndarray] = {}
    returned: dict[str, np.ndarray] = {}
    updates = events.dropna(subset=["worker"]).drop_duplicates("worker").sort_values("worker")
    # A worker's model and its position in the data are those of when it read from its server.
    read = {
        worker: (trainer.first, trainer.hand_out(steps))
        for worker, steps in zip(updates["worker"], updates["step_count"], strict=True)
    }
    total, columns = 0, ("event", "region", "worker", "step_count")
    for event, region, worker, steps in zip(*(events[name] for name in columns), strict=True):
        name = region if is_halos else "global"
        server = servers[name]
        if event == "update":
            start, first = read[worker]
            server.take(start - trainer.trained(start, worker, first, steps))
            read[worker] = (server.model.copy(), trainer.hand_out(steps))
            since[name] += 1
            if is_halos and since[name] == job.updates_per_push:
                pushed[name] = merged[name] - server.model
        elif event == "push":
            above.take(pushed[name])
            returned[name] = above.model.copy()
        else:
            weight = job.merge_weight_share
            server.model = ((1 - weight) * server.model + weight * returned[name]).astype("f4")
            merged[name], since[name] = server.model.copy(), 0
        if event == ("push" if is_halos else "update"):
            total += steps
            yield total, (above if is_halos else server).model


def in_rounds(
    events: pd.DataFrame, trainer: Trainer, scheme: str
) -> Iterator[tuple[int, np.ndarray]]:
    """Train round by round: all workers begin with one model, and their steps are averaged."""
    count = int(events["worker"].nunique())
    steps = events["step_count"].head(count).tolist()
    server = Server(trainer.first, RULES.get(scheme, Rule(1, 0)))
    for turn in range(1, len(events) // count + 1):
        start = server.model
        if scheme == "synchronous":
            # One batch of all workers has the mean gradient of theirs.
            first = trainer.hand_out(count)
            server.model = trainer.trained(start, 0, first, 1, batches=count)
        else:
            ends = [
                trainer.trained(start, worker, trainer.hand_out(own), own)
                for worker, own in enumerate(steps)
            ]
            server.take(start - np.mean(ends, axis=0))
        yield turn * sum(steps), server.model


def held_text() -> str:
    """Read the text to train on."""
    path = datasets.path("local-training-text") / "topics.txt.xz"
    return lzma.decompress(path.read_bytes()).decode()


def losses(
    events: pd.DataFrame, seed: int, job: analyze.LocalTrainingJob, *, until: float = np.inf
) -> pd.DataFrame:
    """Evaluate the global model of one run, the initial one first, up to some local steps."""
    text = held_text()
    trainer = Trainer(text, seed, job.step_count)
    every = job.step_count / EVALUATIONS
    rows = [(0, trainer.held_out_loss(trainer.first))]
    for total, model in replayed(events, trainer, job):
        if total // every > rows[-1][0] // every or total >= job.step_count:
            rows.append((total, trainer.held_out_loss(model)))
        if total >= until:
            break
    table = pd.DataFrame(rows, columns=["step_count", "loss"])
    updates = events.loc[events["event"] == "update", "staleness_count"]
    table = table.assign(
        scheme=events["scheme"].iloc[0],
        seed=seed,
        staleness_count=updates.astype(float).mean(),
        model=f"character model, {len(trainer.first):,} parameters",
    )
    return LOCAL_TRAINING_LOSSES.check(LOCAL_TRAINING_LOSSES.cast(table))


def run(case: tuple[str, int, Path]) -> pd.DataFrame:
    """Train one scheme with one seed on the clock of some regions."""
    scheme, seed, regions = case
    job = analyze.LocalTrainingJob()
    return losses(simulate.local_training(load.regions(regions), scheme, job), seed, job)


def main() -> None:
    """Train every scheme with every seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--regions", type=Path, default=HERE / "regions.csv")
    parser.add_argument("--out", type=Path, default=HERE / "losses.parquet")
    given = parser.parse_args()
    cases = [(*case, given.regions) for case in product(SCHEMES, SEEDS)]
    with ProcessPoolExecutor() as pool:
        tables = list(pool.map(run, cases))
    LOCAL_TRAINING_LOSSES.joined(tables).to_parquet(given.out, compression="zstd")


if __name__ == "__main__":
    main()
