"""Act: carry out a Plan. The only room that writes to the cluster.

Nothing here chooses: replicas are not rounded, clamped or compared with anything but what is
there already. Field managers: ``sojourn`` owns status, ``sojourn-scale`` the replicas through the
scale subresource, ``sojourn-batch`` one environment variable; one manager for two of them would
unset the other's field at its next apply.
"""
