"""The system calls allowed in a container where bubblewrap creates a sandbox.

Docker's default filter forbids creating namespaces and mounting in them, except in privileged containers. This filter
permits both, because the operating system confines their effects to the caller's own namespace. Beyond these calls, it
allows only those that ordinary programs need. All others fail with EPERM: kernel modules, kexec, eBPF, perf, keyrings,
userfaultfd, io_uring, tracing, other processes' namespaces, clocks, quotas, and more. Unknown names are ignored.
"""

import json

#: Calls that bubblewrap needs and Docker forbids. glibc starts threads with clone3, whose flags no filter can inspect.
SANDBOX = "clone clone3 mount pivot_root umount2 unshare"

#: Calls of ordinary programs, for processes, memory, files, events, time and communication.
ORDINARY = """
    arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getcpu getegid geteuid
    getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid
    getuid ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self membarrier
    modify_ldt pause pidfd_getfd pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq rt_sigaction
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
    sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
    sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
    set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority setregid
    setresgid setresuid setreuid setrlimit setsid setuid sigaltstack sysinfo tgkill times tkill uname vfork wait4 waitid

    brk madvise map_shadow_stack memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect mremap mseal
    msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease remap_file_pages

    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
    fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr
    fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr inotify_add_watch inotify_init
    inotify_init1 inotify_rm_watch ioctl lchown lgetxattr link linkat listxattr llistxattr lremovexattr lseek lsetxattr
    lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr
    splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime
    utimensat utimes vmsplice write writev

    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_requeue
    futex_wait futex_waitv futex_wake io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit poll ppoll
    pselect6 select signalfd signalfd4

    adjtimex alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
    timerfd_settime

    accept accept4 bind connect getpeername getrandom getsockname getsockopt listen mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd recvfrom recvmmsg recvmsg semctl semget semop
    semtimedop sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown socketpair
"""

#: AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK, but not AF_ALG (kernel cryptography) or AF_VSOCK (virtual machines).
SOCKET_FAMILIES = (1, 2, 10, 16)

#: Linux's execution domain, and the value that queries the current one.
PERSONALITIES = (0x0, 0xFFFFFFFF)


def profile() -> str:
    """Returns the profile as JSON in Docker's format."""
    names = sorted({*SANDBOX.split(), *ORDINARY.split()})
    rules: list[dict[str, object]] = [{"names": names, "action": "SCMP_ACT_ALLOW"}]
    rules += [_if_first("socket", family) for family in SOCKET_FAMILIES]
    rules += [_if_first("personality", persona) for persona in PERSONALITIES]
    architectures: list[dict[str, object]] = [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "archMap": architectures, "syscalls": rules})


def _if_first(name: str, value: int) -> dict[str, object]:
    condition = {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": [condition]}
