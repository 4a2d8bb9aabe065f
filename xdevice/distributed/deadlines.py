"""How long the processes of a job wait for each other after a failure.

The processes and their launcher share these constants. Times are in seconds.
Each is derived from those that it must exceed. The timeouts that a user
chooses are added to these.
"""

PEER_FAILED = 75
"""The exit status of a process that ends because another one has failed."""

# Bytes per second, between hosts and within a busy one. A transfer at this rate
# has not failed, however long it takes.
WORST_BANDWIDTH = 10e6
WORST_BANDWIDTH_ON_ONE_HOST = 100e6

# For a process to say where it is. The only chosen number: a busy host takes a
# second at most.
ANSWER = 1.5

# For rank 0 to tell the others that a process has raised: rank 0 may be
# waiting for answers.
REPORT = ANSWER + 0.5

# For rank 0 to name the failed rank after a timeout: it asks every process and
# waits.
DIAGNOSIS = 2 * ANSWER

# In a barrier, beyond the timeout: rank 0 starts its clock later if it is
# busy.
BARRIER_MARGIN = DIAGNOSIS + 2 * ANSWER

# For an engine to return by itself once a process has failed. The diagnosis
# comes first.
LEAVING = DIAGNOSIS

# For the launcher to wait for the failed process, after others have ended
# because of it.
SETTLING = LEAVING + 1

# Between SIGTERM and SIGKILL: a process in an engine leaves it before it is
# killed.
TERMINATION = LEAVING

# For frameworks to end in a failed process. By then a launcher has asked it to
# stop.
LAST_RESORT = 2 * SETTLING + 2

# For a process to end by SIGKILL. After that, one that hangs in a system call
# is left alone.
UNKILLABLE = LAST_RESORT

# For a connection to authenticate itself, and as long again to send its join
# message.
HANDSHAKE = 2 * ANSWER
