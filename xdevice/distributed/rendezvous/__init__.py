"""How the processes of a job find each other and prove that they belong to it, and rank 0, which coordinates them."""
