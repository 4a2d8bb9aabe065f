"""What adapters share: DLPack, shared memory, Keras, the standard, …"""
