#!/bin/sh
#SBATCH --job-name=resume
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --time=10
# Slurm: srun starts the processes, and xdevice reads its variables.
#
#     XDEVICE_BACKEND=torch sbatch examples/clusters/slurm.sh     from the project's folder
#
# On several nodes add XDEVICE_TRUST_NETWORK=1, because engines do not authenticate connections.
# After a failure the loop starts a new step, and after a node's failure Slurm requeues the job (sbatch --requeue).
# Both resume from the last checkpoint, in a folder that the nodes share.
for pause in 0 1 5 15; do
    sleep "$pause"
    srun --kill-on-bad-exit "${PYTHON:-python}" examples/resume.py --checkpoint "resume-$SLURM_JOB_ID.safetensors" "$@" &&
        exit
done
exit 1
