"""What ends a process of a job, and what the user is told: timeouts, the watchdog, errors that name a rank."""
