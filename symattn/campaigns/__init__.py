"""Many verifications at once: targets × specifications × dtypes × domains, over all cores or a cluster.

``plan`` makes the jobs, ``backends`` runs them, ``store`` stores their results, ``summary`` reports them.
"""
