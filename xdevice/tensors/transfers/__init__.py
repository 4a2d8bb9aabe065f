"""Copies between devices: seen (`watch_transfers`), forbidden (`transfer_guard`) and hidden (`prefetch`)."""
