"""One machine without Kubernetes: the processes that `estiba up` starts and the loop that it runs."""
