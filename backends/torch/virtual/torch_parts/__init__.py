"""What torch has for CUDA alone, or does in another way for it, and both ways of making virtual GPUs need."""
