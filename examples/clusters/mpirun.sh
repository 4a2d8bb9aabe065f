#!/bin/sh
# Open MPI's mpirun: two processes on this host.
#
#     XDEVICE_BACKEND=torch sh examples/clusters/mpirun.sh
#
# --bind-to none: by default each process is bound to one core. --oversubscribe: allow fewer cores than processes.
# mpirun does not restart jobs, so the loop does; the processes resume from the job's own last checkpoint.
for pause in 0 1 5 15; do
    sleep "$pause"
    mpirun -n 2 --oversubscribe --bind-to none "${PYTHON:-python}" "$(dirname "$0")/../resume.py" \
        --checkpoint "resume-$$.safetensors" "$@" && exit
done
exit 1
