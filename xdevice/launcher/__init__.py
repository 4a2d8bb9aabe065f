"""Outside a job: starting its processes, passing on their output, and stopping all that they have started."""
