"""How long the application waits for a kernel and its gateway, in seconds."""

#: For the gateway to answer a request.
GATEWAY_TIMEOUT = 20.0

#: For the gateway to answer a request that needs no work.
ANSWER_GRACE = 3.0

#: For a gateway that did not answer to answer a probe. If it doesn't, it is lost, with all kernels.
PROBE_TIMEOUT = 10.0

#: For a connection to close once the gateway is lost.
LOST_GRACE = 0.1

#: For a new kernel to answer, by default.
KERNEL_INIT_TIMEOUT = 60.0

#: For an execution to end after an interrupt, before its kernel is restarted.
INTERRUPT_GRACE = 3.0

#: Fraction of that time after which a second interrupt is sent: late, because it also interrupts cleanup code.
SECOND_INTERRUPT = 0.75

#: For output to arrive that a kernel printed before a tool call, if the call arrived first.
MARK_TIMEOUT = 2.0
