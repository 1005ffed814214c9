"""Where implementations come from: somebody's function is found, called as it wants to be, and watched.

``target.target(function, request)`` calls in this process; ``child.Child("file.py:function", request)`` in one of its
own, with time limits. Both are ``symattn.bounds.called_target.Runner``.
"""
