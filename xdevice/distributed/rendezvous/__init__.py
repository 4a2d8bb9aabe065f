"""How the processes of a job meet at rank 0, which then watches over them."""
