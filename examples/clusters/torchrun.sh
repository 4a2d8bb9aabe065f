#!/bin/sh
# torchrun: two processes on this host, under any framework.
#
#     XDEVICE_BACKEND=torch sh examples/clusters/torchrun.sh
#
# "python -m torch.distributed.run" is torchrun. On several hosts type its usual command on each (--nnodes,
# --rdzv-endpoint), with XDEVICE_TRUST_NETWORK=1, since engines do not check who connects to them, and with the
# same XDEVICE_TOKEN, as from openssl rand -hex 32.
exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc-per-node 2 "$(dirname "$0")/../resume.py" "$@"
