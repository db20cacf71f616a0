"""The command line: the only place that reads arguments, environment, .env files and signals, and sets up logging.

    option            what an option is
    option_values     how texts become values
    option_table      all options, each written once
    option_use        adds them to parsers, and reads them from a parsed command line
    options           the parser of `ipybox`: the options, and its commands
    command           runs what was asked for
    serve             the MCP server over stdio or HTTP
    docker_options    the parser of `ipybox docker`, and the container that a command line describes
    docker_command    `ipybox docker`
    demo              `ipybox demo`
    doctor            `ipybox doctor`; `diagnosis` has the checks that it and the plugins' notice need
    clean             `ipybox clean`

`diagnosis` needs the standard library only: a plugin's hook runs it before anything is installed.
"""
