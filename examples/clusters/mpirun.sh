#!/bin/sh
# Open MPI's mpirun: two processes on this host; each uses its framework's own engine, or MPI with XDEVICE_ENGINE=mpi.
#
#     XDEVICE_BACKEND=torch sh examples/clusters/mpirun.sh
#
# --bind-to none: by default each process is kept on one core. --oversubscribe: also where there are fewer cores.
# mpirun restarts nothing, so the loop does; the processes go on at the last checkpoint, which this job alone has.
for pause in 0 1 5 15; do
    sleep "$pause"
    mpirun -n 2 --oversubscribe --bind-to none "${PYTHON:-python}" "$(dirname "$0")/../resume.py" \
        --checkpoint "resume-$$.safetensors" "$@" && exit
done
exit 1
