#!/usr/bin/env bash
# Slurm 22.05.8 of Debian 12, slurmdbd on MariaDB, one node on the loopback interface.
#
# sacct subtracts 128 from an ExitCode of 128 and more: of a job whose script ended with `exit 200`
# it prints 72:0, and of `exit 128` it prints 0:0 beside the state FAILED. A script that ended with
# 137, as a shell does whose child was killed, prints 9:0 like one that ended with 9, and 255 prints
# 127:0, the code of a command that was not found. DerivedExitCode, the highest code of the steps
# that srun began, is printed as it was: 200:0 stands beside 72:0 in one row.
# A table of ExitCode by job therefore mixes codes of programs with signals that shells translated,
# and "FAILED with exit code 0" looks like damage of the accounting. Bitten is everybody who finds
# out from `sacct -P` why training jobs died, above all where jobs run without srun.
#
# Seen, JobName|JobID|State|ExitCode|DerivedExitCode (jobs alone; exitN ran `exit N`, stepN ran
# it under srun):
# exit127|3|FAILED|127:0|0:0
# exit128|4|FAILED|0:0|0:0
# exit137|5|FAILED|9:0|0:0
# exit200|6|FAILED|72:0|0:0
# exit255|7|FAILED|127:0|0:0
# killed|8|FAILED|0:9|0:0
# shell|9|FAILED|9:0|0:0
# step9|10|FAILED|9:0|9:0
# step137|11|FAILED|9:0|137:0
# step200|12|FAILED|72:0|200:0
# stepkilled|13|FAILED|9:0|0:9
set -euo pipefail

folder=$(mktemp -d)
export LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu:$folder/usr/lib/x86_64-linux-gnu/slurm-wlm
export SLURM_CONF=$folder/etc/slurm.conf
pids=()
end() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap end EXIT
cd "$folder"

apt-get download -qq slurm-wlm-basic-plugins slurm-client slurmd slurmctld slurm-wlm-mysql-plugin \
    slurmdbd munge libmunge2 mariadb-server mariadb-server-core libmariadb3 libaio1 liburing2 libhwloc15 \
    liblua5.1-0 mariadb-client-core 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
# The daemons look at the name under which they were started.
for name in slurmctld slurmd slurmstepd; do ln -s "$name-wlm" "usr/sbin/$name"; done

mkdir -p etc db state spool tmp
chmod 700 etc
mariadb=$folder/usr
"$mariadb/bin/mariadb-install-db" --no-defaults --basedir="$mariadb" --datadir="$folder/db" \
    --user="$(id -un)" --auth-root-authentication-method=normal --skip-test-db >db.log 2>&1
"$mariadb/sbin/mariadbd" --no-defaults --basedir="$mariadb" --datadir="$folder/db" \
    --user="$(id -un)" --socket="$folder/tmp/db.sock" --pid-file="$folder/tmp/db.pid" \
    --bind-address=127.0.0.1 --port=36061 --innodb-lock-wait-timeout=900 >mariadb.log 2>&1 &
pids+=($!)
sql() { "$mariadb/bin/mariadb" --no-defaults --socket="$folder/tmp/db.sock" --user=root "$@"; }
for _ in $(seq 60); do sql -e "select 1" >/dev/null 2>&1 && break; sleep 1; done
sql -e "create database slurm_acct_db; create user 'slurm'@'127.0.0.1' identified by 'slurm';
        create user 'slurm'@'localhost' identified by 'slurm';
        grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1';
        grant all on slurm_acct_db.* to 'slurm'@'localhost'; flush privileges"

head -c 1024 /dev/urandom >etc/munge.key
chmod 400 etc/munge.key
chmod 711 tmp
"$folder/usr/sbin/munged" --foreground --force --key-file="$folder/etc/munge.key" \
    --socket="$folder/tmp/munge.sock" --pid-file="$folder/tmp/munged.pid" \
    --log-file="$folder/munged.log" --seed-file="$folder/tmp/munge.seed" >munged.out 2>&1 &
pids+=($!)

plugins=$folder/usr/lib/x86_64-linux-gnu/slurm-wlm
cat >etc/slurmdbd.conf <<CONF
AuthType=auth/munge
AuthInfo=socket=$folder/tmp/munge.sock
DbdHost=localhost
DbdPort=36062
SlurmUser=$(id -un)
LogFile=$folder/slurmdbd.log
PidFile=$folder/tmp/slurmdbd.pid
PluginDir=$plugins
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=36061
StorageUser=slurm
StoragePass=slurm
CONF
chmod 600 etc/slurmdbd.conf
host=$(hostname -s)
cat >etc/slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=36063
SlurmdPort=36064
AuthType=auth/munge
AuthInfo=socket=$folder/tmp/munge.sock
CredType=cred/munge
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
PluginDir=$plugins
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/tmp/slurmctld.pid
SlurmdPidFile=$folder/tmp/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=36062
AccountingStoragePass=$folder/tmp/munge.sock
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=1 RealMemory=500 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
"$folder/usr/sbin/slurmdbd" -D >dbd.out 2>&1 &
pids+=($!)
bin=$folder/usr/bin
export PATH=$bin:$PATH
for _ in $(seq 30); do "$bin/sacctmgr" -n list cluster >/dev/null 2>&1 && break; sleep 1; done
"$bin/sacctmgr" -iQ add cluster test >/dev/null 2>&1 || true
"$folder/usr/sbin/slurmctld" -D >ctld.out 2>&1 &
pids+=($!)
"$folder/usr/sbin/slurmd" -D -d "$folder/usr/sbin/slurmstepd" -N "$host" >slurmd.out 2>&1 &
pids+=($!)
for _ in $(seq 30); do "$bin/sinfo" -hNo %T 2>/dev/null | grep -q idle && break; sleep 1; done

submit() { "$bin/sbatch" -Q -o /dev/null --job-name "$1" --wrap "$2" >/dev/null; }
for code in 0 7 127 128 137 200 255; do submit "exit$code" "exit $code"; done
submit killed 'kill -9 $$'
submit shell "sh -c 'kill -9 \$\$'; exit \$?"
for code in 9 137 200; do submit "step$code" "srun sh -c 'exit $code'"; done
submit stepkilled "srun sh -c 'kill -9 \$\$'"
for _ in $(seq 60); do [ -z "$("$bin/squeue" -h)" ] && break; sleep 1; done
sleep 3
"$bin/sacct" -XP --format=JobName,JobID,State,ExitCode,DerivedExitCode | tee sacct.txt
for row in exit128:0:0 exit137:9:0 exit200:72:0 exit255:127:0; do
    grep -q "^${row%%:*}|[0-9]*|FAILED|${row#*:}|0:0$" sacct.txt
done
grep -q '^step200|[0-9]*|FAILED|72:0|200:0$' sacct.txt
grep -q '^step137|[0-9]*|FAILED|9:0|137:0$' sacct.txt
