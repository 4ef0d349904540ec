#!/bin/bash
# Train on several machines under Slurm:  sbatch scripts/slurm_train.sh CONFIG [OPTIONS]
#
# The text, the configuration and the run directory must lie on a disk that all machines share, and so should the cache
# (data.cache_dir), without which each machine tokenises the text again. --resume starts from the beginning when there is
# no checkpoint yet, so the same command begins the run and goes on with it. Two minutes before its time is up Slurm sends
# SIGTERM; the run then saves and leaves, and the job is put back into the queue.
#
#SBATCH --job-name=transformer-cli
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -u

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
stopped=0

srun --kill-on-bad-exit=1 torchrun \
    --nnodes="$SLURM_NNODES" \
    --nproc-per-node="$SLURM_GPUS_ON_NODE" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:29500" \
    -m transformer_cli train "$@" --resume &
run=$!

# Slurm signals this shell; srun passes the signal on to torchrun, and torchrun to its processes.
trap 'stopped=1; kill -TERM "$run"' TERM

wait "$run"
status=$?
if [ "$stopped" = 1 ]; then
    wait "$run"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
