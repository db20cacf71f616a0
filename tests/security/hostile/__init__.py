"""A repository that somebody hostile has made, the ways in which people open it, and what it tries.

`repository` makes it, `insider` is what its code does in a kernel, `ways` are the ways in, `visit` goes one of them to
the end, and `probes` lists what may come of it, which is nothing.
"""
