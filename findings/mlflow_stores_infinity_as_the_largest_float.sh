#!/bin/sh
# MLflow 3.4.0 with its SQL store (sqlite:///...): a metric that is infinite is stored, and given
# back by its own client, as 1.7976931348623157e+308, the largest float64; minus infinity as the
# negative of it. A NaN is stored as 0 with a flag and comes back as NaN. The file store keeps
# "inf" as it was logged.
#
# Seen: "sql inf -> 1.7976931348623157e+308", "sql -inf -> -1.7976931348623157e+308",
# "sql nan -> nan", "file inf -> inf".
#
# Who is bitten: whoever reads the loss of a diverged training run from the database. It looks
# finite, so a check for infinity passes, and a mean over the run is 1e305 without an error.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check mlflow-skinny==3.4.0 \
    sqlalchemy==2.0.43 alembic==1.16.5 pandas==2.3.2
cd "$folder"
cat > seen.py <<'PYTHON'
import math
import sys

from mlflow import MlflowClient

LARGEST = sys.float_info.max


def seen(store, value):
    client = MlflowClient(tracking_uri=store)
    run = client.create_run(client.create_experiment(f"of {value}"))
    client.log_metric(run.info.run_id, "loss", value, step=1)
    return client.get_metric_history(run.info.run_id, "loss")[0].value


values = {}
for name, store in (("sql", "sqlite:///mlflow.db"), ("file", "file:./mlruns")):
    for value in (math.inf, -math.inf, math.nan):
        values[name, str(value)] = seen(store, value)
        print(f"{name} {value} -> {values[name, str(value)]!r}")
assert values["sql", "inf"] == LARGEST
assert values["sql", "-inf"] == -LARGEST
assert math.isnan(values["sql", "nan"])
assert values["file", "inf"] == math.inf
PYTHON
"$folder/env/bin/python" -W ignore seen.py
echo "unchanged: MLflow's SQL store turns infinity into the largest float"
