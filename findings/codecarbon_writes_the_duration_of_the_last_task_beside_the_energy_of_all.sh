#!/usr/bin/env bash
# CodeCarbon 3.3.2, EmissionsTracker.start_task and stop_task.
#
# A tracker that measures tasks writes two files. Rows of the task file are differences: they add
# up. The row of the run holds the energy of all tasks, but the duration of the last one, so that
# energy over duration is not the power: two tasks of 2 s at 100 W give 100 W in cpu_power and
# 200 W as cpu_energy / duration. Two columns of one row contradict each other, and nothing says
# so. Without tasks the duration is that of the run.
#
# Seen: tasks of 2.00 s and 200 J each; run 2.00 s, 400 J, 100 W as written, 200 W by division.
# (On a machine that is busy with little else CodeCarbon scales the forced power by the load; the
# ratio of two stays.)
#
# Bitten: whoever works out mean power, or a rate of emissions, from emissions.csv; and whoever
# takes the last row of a task file for the sum of the run, as is right for rows of one run.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet codecarbon==3.3.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import csv
import glob
import sys
import time

from codecarbon import OfflineEmissionsTracker

# Constant powers, so that no sensor and no network is needed.
tracker = OfflineEmissionsTracker(
    country_iso_code="NOR", force_cpu_power=100, force_ram_power=20, log_level="critical",
    output_dir=".", allow_multiple_runs=True,
)
for name in ("first", "second"):
    tracker.start_task(name)
    time.sleep(2)
    tracker.stop_task()
tracker.stop()

(tasks,) = glob.glob("emissions_base_*.csv")
rows = {file: list(csv.DictReader(open(file))) for file in (tasks, "emissions.csv")}
for file, table in rows.items():
    for row in table:
        joules, seconds = 3.6e6 * float(row["cpu_energy"]), float(row["duration"])
        print(f"{row.get('task_name', 'run')}: {seconds:.2f} s, {joules:.0f} J, "
              f"cpu_power {float(row['cpu_power']):.0f} W, energy/duration {joules / seconds:.0f} W")
energy = [sum(float(row["cpu_energy"]) for row in table) for table in rows.values()]
run = rows["emissions.csv"][-1]
is_last = abs(float(run["duration"]) - float(rows[tasks][-1]["duration"])) < 0.5
sys.exit(0 if is_last and abs(energy[0] / energy[1] - 1) < 0.05 else "the behaviour has changed")
PYTHON
