#!/bin/sh
# torchrun: two processes on this host, under any framework.
#
#     XDEVICE_BACKEND=torch sh examples/clusters/torchrun.sh
#
# "python -m torch.distributed.run" is torchrun. On several hosts type its usual command on each (--nnodes,
# --rdzv-endpoint), with XDEVICE_TRUST_NETWORK=1, since engines do not check who connects to them, and with the
# same XDEVICE_TOKEN, as from openssl rand -hex 32.
#
# --max-restarts: after a failure torchrun starts all processes again, on every host, and they go on at the last
# checkpoint. The file has a name of its own for each job; on several hosts name one in a folder that they share.
exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 3 \
    "$(dirname "$0")/../resume.py" --checkpoint "resume-$$.safetensors" "$@"
