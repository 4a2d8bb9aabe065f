"""``torch.nn`` on virtual GPUs: modules, attention, DataParallel, SyncBatchNorm."""
