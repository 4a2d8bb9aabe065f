"""Virtual GPUs by a plug-in of torch, in C++: how it is built, and its functions."""
