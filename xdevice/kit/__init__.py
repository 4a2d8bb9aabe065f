"""What adapters share: DLPack, units, shared memory, Keras, the array API standard, and more."""
