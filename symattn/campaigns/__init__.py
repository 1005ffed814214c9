"""Many verifications at once: targets × specifications × dtypes × domains, over all cores or a cluster.

``plan`` makes the jobs, ``store`` keeps what came of them, ``backends`` run them, ``summary`` tells of them.
"""
