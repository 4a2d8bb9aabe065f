#!/bin/sh
# torchrun: two processes on this host, under any framework.
#
#     XDEVICE_BACKEND=torch sh examples/clusters/torchrun.sh
#
# "python -m torch.distributed.run" is torchrun. On several hosts run the usual command on each (--nnodes,
# --rdzv-endpoint), with XDEVICE_TRUST_NETWORK=1, because engines do not authenticate connections.
#
# --max-restarts: after a failure torchrun restarts all processes on every host, and they resume from the last
# checkpoint. Each job has its own file; on several hosts choose one in a folder that they share.
exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 3 \
    "$(dirname "$0")/../resume.py" --checkpoint "resume-$$.safetensors" "$@"
