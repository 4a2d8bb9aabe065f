"""What a program needs of a GPU's memory: what each process has used, and the estimate from it."""
