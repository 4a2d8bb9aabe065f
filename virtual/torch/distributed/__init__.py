"""``torch.distributed`` on virtual GPUs: process groups, collectives, DTensor."""
