"""Outside a job: starting its processes, passing on their output, and stopping all that they have started.

Imports `distributed`, for the variables and ports of a job, and nothing above it.
"""
