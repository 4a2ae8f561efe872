"""What configs will take, from a trace of the workload and, if there are any, a few trials.

No torch and no device: all of it is arithmetic, for thousands of configs a second.
"""
