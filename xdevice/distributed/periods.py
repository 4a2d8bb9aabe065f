"""How long the processes of a job wait for one another: each period in seconds, derived from those it must exceed.

The periods that a user chooses, `timeout` above all, come on top of these.
"""

ANSWER = 1.5
"""A process answers the question where it is. The one number that is chosen: a busy host takes a second at most."""

NEWS = ANSWER + 0.5
"""A process that has raised waits until rank 0 has told the others; rank 0 may be waiting for answers."""

VERDICT = 2 * ANSWER
"""A process whose time is over waits until rank 0 says which rank is to blame, for which rank 0 asks all and waits."""

AT_GATE = VERDICT + 2 * ANSWER
"""What a process waits at the gate beyond the timeout: rank 0 starts its clock later, by as much as it is busy."""

LEAVING = VERDICT
"""An engine has to come back by itself once a process has failed: the verdict, which says who, comes first."""

SETTLING = LEAVING + 1
"""A launcher waits for the process that has failed to end, after others have ended because of it."""

TERMINATION = LEAVING
"""Between SIGTERM and SIGKILL: a process in an engine leaves it before it is killed."""

LAST_RESORT = 2 * SETTLING + 2
"""Frameworks may take as long to end in a process that has failed. A launcher has asked it to stop by then."""

UNKILLABLE = LAST_RESORT
"""After which a process that does not end by SIGKILL, in a system call that hangs, is left to the system."""

PROVING = 2 * ANSWER
"""A connection has to prove that it is of the job, and then to introduce itself, each within this time."""
