"""How the processes of a job meet at rank 0, and how rank 0 then watches over them."""
